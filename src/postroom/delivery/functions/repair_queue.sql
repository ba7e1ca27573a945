-- Compare a range of deliveries with the queue, in the order of their ids: add the row of a delivery that waits and has none, and
-- delete rows whose delivery does not wait. No worker would claim the first, and it would not expire; the second make the lane look
-- late. Only statements outside Postroom cause either: with triggers disabled, or on due_deliveries itself. Returns the last id,
-- NULL at the end, and the numbers of both. A microsecond later: the trigger then writes the row, by its own rule.
CREATE OR REPLACE FUNCTION repair_queue(
    p_after bigint, p_limit integer, OUT last_id bigint, OUT missing bigint, OUT orphans bigint
)
LANGUAGE plpgsql
SET enable_seqscan = off -- a plan cached while the tables were small must still be right when they are large
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
AS $$
DECLARE
    v_until bigint;
BEGIN
    SELECT id INTO last_id FROM deliveries WHERE id > p_after ORDER BY id OFFSET p_limit - 1 LIMIT 1;
    v_until := coalesce(last_id, 9223372036854775807);
    UPDATE deliveries
    SET next_attempt_at = next_attempt_at + interval '1 microsecond'
    WHERE id = ANY (ARRAY(
        SELECT d.id
        FROM deliveries AS d
        WHERE d.id > p_after AND d.id <= v_until AND d.next_attempt_at IS NOT NULL
            AND (SELECT w.id FROM due_deliveries AS w WHERE w.id = d.id) IS NULL -- not joined: one look-up for each
        ORDER BY d.id
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS missing = ROW_COUNT;
    -- A row that a retry makes valid again between the look and the lock is deleted, and is missing at the next look.
    DELETE FROM due_deliveries
    WHERE id = ANY (ARRAY(
        SELECT w.id
        FROM due_deliveries AS w
        WHERE w.id > p_after AND w.id <= v_until
            AND (SELECT d.id FROM deliveries AS d WHERE d.id = w.id AND d.next_attempt_at IS NOT NULL) IS NULL
        ORDER BY w.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS orphans = ROW_COUNT;
END
$$;
