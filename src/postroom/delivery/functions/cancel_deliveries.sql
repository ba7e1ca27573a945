-- Cancel deliveries that wait to be sent; a delivery in any other state is unchanged. Returns the ids of the cancelled ones.
CREATE OR REPLACE FUNCTION cancel_deliveries(p_ids bigint[], p_reason text, p_now timestamptz DEFAULT now())
RETURNS SETOF bigint
LANGUAGE sql -- planned at each call: a plan cached while the queue was short would read all of a long one
AS $$
    UPDATE deliveries
    SET state = 'cancelled', next_attempt_at = NULL, finished_at = p_now, reason = p_reason
    WHERE id = ANY(p_ids) AND state IN ('queued', 'rendered')
    RETURNING id
$$;
