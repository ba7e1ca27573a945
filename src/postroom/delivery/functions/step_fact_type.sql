-- The type of the fact that a step is.
CREATE OR REPLACE FUNCTION step_fact_type(p_step delivery_step) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE p_step
    WHEN 'accepted' THEN 'DeliveryAccepted'
    WHEN 'sent' THEN 'DeliverySent'
    WHEN 'deferred' THEN 'DeliveryDeferred'
    WHEN 'failed' THEN 'DeliveryFailed'
    WHEN 'dead_lettered' THEN 'DeliveryDeadLettered'
    WHEN 'suppressed' THEN 'DeliverySuppressed'
    WHEN 'cancelled' THEN 'DeliveryCancelled'
    WHEN 'redriven' THEN 'DeliveryRedriven'
END;
