-- Cancel deliveries that wait to be sent; a delivery in any other state is unchanged. Returns the ids of the cancelled ones.
CREATE OR REPLACE FUNCTION cancel_deliveries(p_ids bigint[], p_reason text, p_now timestamptz DEFAULT now())
RETURNS SETOF bigint
LANGUAGE sql -- planned at each call: a plan cached while the queue was short would read all of a long one
AS $$
    WITH cancelled AS (
        UPDATE deliveries
        SET state = 'cancelled', next_attempt_at = NULL, finished_at = greatest(p_now, created_at), reason = p_reason
        WHERE id = ANY(p_ids) AND state IN ('queued', 'rendered')
        RETURNING *
    ),
    stepped AS (
        INSERT INTO delivery_steps (
            transaction_id, written_by, delivery_id, at, step, lane, channel, source, reason, attempt_no, campaign_id, sender_account_id,
            domain
        )
        SELECT place.transaction_id, place.written_by, id, finished_at, 'cancelled', lane, channel, source, p_reason,
            attempt_count, campaign_id, sender_account_id, CASE WHEN channel = 'email' THEN nullif(first_domain(id), '') END
        FROM cancelled
        CROSS JOIN LATERAL assign_step_place(cancelled.id) AS place
    )
    SELECT id
    FROM cancelled
    CROSS JOIN (SELECT wake_event_followers()) AS woken
$$;
