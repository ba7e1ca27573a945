-- Hold waiting deliveries by moving their next attempt far ahead, or release them by moving it back; one that does not wait, or
-- is held or free already, is unchanged: a retry may have moved it since the caller found it. Returns the ids of the moved ones.
CREATE OR REPLACE FUNCTION shift_deliveries(p_ids bigint[], p_by interval) RETURNS SETOF bigint
LANGUAGE sql -- planned at each call, as cancel_deliveries is
AS $$
    UPDATE deliveries
    SET next_attempt_at = next_attempt_at + p_by
    WHERE id = ANY(p_ids) AND (next_attempt_at >= '2900-01-01 00:00Z') = (p_by < interval '0')
    RETURNING id
$$;
