-- Lock what is due in a lane, oldest first, and say in which order. Its own function, because a cached plan takes a LIMIT it
-- does not know for a tenth of the table and would rather read all of it than look up five hundred rows: here the index
-- decides, and ROWS tells the statement around it how few rows to expect.
CREATE OR REPLACE FUNCTION lock_due_deliveries(p_lane delivery_lane, p_limit integer, p_now timestamptz)
RETURNS TABLE (id bigint, ordinal bigint)
LANGUAGE plpgsql
ROWS 100
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT due.id, row_number() OVER ()
    FROM (
        SELECT d.id
        FROM deliveries AS d
        WHERE d.lane = p_lane
            AND d.next_attempt_at <= p_now
            AND d.next_attempt_at IS NOT NULL
            AND (d.state = 'rendered' OR d.template_id IS NULL)
        ORDER BY d.next_attempt_at, d.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ) AS due;
END
$$;
