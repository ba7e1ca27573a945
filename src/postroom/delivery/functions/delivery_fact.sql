-- The fact of a transition; NULL for internal ones: rendering, claiming, releasing.
CREATE OR REPLACE FUNCTION delivery_fact(p_old delivery_state, p_new delivery_state, p_attempts_taken_back integer) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE p_new
        WHEN 'sent' THEN 'DeliverySent'
        WHEN 'failed' THEN 'DeliveryFailed'
        WHEN 'dead_letter' THEN 'DeliveryDeadLettered'
        WHEN 'cancelled' THEN 'DeliveryCancelled'
        WHEN 'suppressed' THEN 'DeliverySuppressed'
        ELSE CASE
            WHEN p_old = 'sending' AND p_new <> 'sending' AND p_attempts_taken_back = 0 THEN 'DeliveryDeferred'
            WHEN p_old = 'dead_letter' THEN 'DeliveryRedriven'
        END
    END
$$;
