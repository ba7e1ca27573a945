-- Insert mail to one recipient each, whose suppression the caller has checked, and wake a sleeping worker. The caller
-- takes ids from deliveries_id_seq. p_held_until: the end of a hold after a soft bounce, NULL for most.
CREATE OR REPLACE FUNCTION enqueue_deliveries(
    p_ids         bigint[],
    p_due_at      timestamptz[],
    p_held_until  timestamptz[],
    p_email       text[],
    p_name        text[],
    p_variables   jsonb[],
    p_lane        delivery_lane,
    p_source      text,
    p_campaign_id bigint,
    p_now         timestamptz DEFAULT now()
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- compiling would cost more than the rows of a slice
AS $$
DECLARE
    v_created_at timestamptz := CASE p_now WHEN now() THEN clock_timestamp() ELSE p_now END; -- tests give another time
BEGIN
    INSERT INTO deliveries (
        id, lane, next_attempt_at, created_at, dated_at, reason, ladder, source, campaign_id, recipient_email, recipient_name,
        transaction_id
    )
    SELECT id, p_lane, coalesce(held_until, due_at), v_created_at, coalesce(held_until, v_created_at),
        CASE WHEN held_until IS NOT NULL THEN 'recipient_held' END, 'generic', p_source, p_campaign_id, email, name,
        (SELECT s.id FROM step_transaction() AS s)
    FROM unnest(p_ids, p_due_at, p_held_until, p_email, p_name) AS i(id, due_at, held_until, email, name);
    INSERT INTO due_deliveries (id, due_at, lane, channel, campaign_id)
    SELECT id, coalesce(held_until, due_at), p_lane, 'email', p_campaign_id
    FROM unnest(p_ids, p_due_at, p_held_until) AS i(id, due_at, held_until);
    INSERT INTO delivery_payloads (delivery_id, variables)
    SELECT id, variables
    FROM unnest(p_ids, p_variables) AS i(id, variables);
    PERFORM wake_workers(ARRAY[p_lane::text]);
END
$$;
