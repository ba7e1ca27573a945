-- Move the next attempt of waiting deliveries by an interval; a delivery that does not wait is unchanged. Returns their ids.
CREATE OR REPLACE FUNCTION shift_deliveries(p_ids bigint[], p_by interval) RETURNS SETOF bigint
LANGUAGE sql -- planned at each call, as cancel_deliveries is
AS $$
    UPDATE deliveries
    SET next_attempt_at = next_attempt_at + p_by
    WHERE id = ANY(p_ids) AND next_attempt_at IS NOT NULL
    RETURNING id
$$;
