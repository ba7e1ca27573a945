-- The last of the next p_limit steps after a place and before another, and the number of these steps; no row without steps.
CREATE OR REPLACE FUNCTION last_step(
    p_after_transaction_id xid8, p_after_position bigint, p_before_transaction_id xid8, p_before_position bigint,
    p_limit integer
) RETURNS TABLE (transaction_id xid8, "position" bigint, steps bigint)
LANGUAGE sql STABLE
AS $$
    SELECT next.transaction_id, next.position, count(*) OVER ()
    FROM (
        SELECT s.transaction_id, s.position
        FROM all_steps AS s
        WHERE (s.transaction_id, s.position) > (p_after_transaction_id, p_after_position)
            AND (s.transaction_id, s.position) < (p_before_transaction_id, p_before_position)
        ORDER BY s.transaction_id, s.position
        LIMIT p_limit
    ) AS next
    ORDER BY next.transaction_id DESC, next.position DESC
    LIMIT 1
$$;
