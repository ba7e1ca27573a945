-- The tag with the fewest events shortly before a place: the one whose hundredth event before it is the oldest. A search that reads
-- a bounded number of events of this tag gets furthest.
CREATE OR REPLACE FUNCTION sparsest_tag(p_tags text[], p_before_transaction_id xid8, p_before_position bigint) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT given.tag
        FROM unnest(p_tags) AS given(tag)
            LEFT JOIN LATERAL (
                SELECT e.transaction_id
                FROM event_tags AS e
                WHERE e.tag = given.tag AND (e.transaction_id, e.position) < (p_before_transaction_id, p_before_position)
                ORDER BY e.transaction_id DESC, e.position DESC
                OFFSET 99
                LIMIT 1
            ) AS hundredth ON true
        ORDER BY hundredth.transaction_id NULLS FIRST, given.tag
        LIMIT 1);
END
$$;
