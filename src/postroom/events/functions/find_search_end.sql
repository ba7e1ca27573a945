-- The place where a search ends that reads, of each query item with a tag and other conditions, p_bound events of the sparsest
-- tag; no row if it reads to the beginning. An item with one condition finds its events by an index.
CREATE OR REPLACE FUNCTION find_search_end(
    p_query                 jsonb,
    p_bound                 bigint,
    p_before_transaction_id xid8,
    p_before_position       bigint
) RETURNS TABLE (transaction_id xid8, "position" bigint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan -- for the reasons of read_events_backwards
SET jit = off -- the same reasons
SET enable_seqscan = off -- the same reasons
SET enable_bitmapscan = off -- the same reasons
AS $$
#variable_conflict use_column
DECLARE
    v_before   xid8 := coalesce(p_before_transaction_id, '9223372036854775807');
    v_position bigint := coalesce(p_before_position, 0);
BEGIN
    RETURN QUERY
    SELECT examined.transaction_id, examined.position
    FROM event_query_items(p_query) AS item
        CROSS JOIN LATERAL (SELECT sparsest_tag(item.tags, v_before, v_position) AS tag) AS sparsest
        CROSS JOIN LATERAL (
            SELECT e.transaction_id, e.position
            FROM event_tags AS e
            WHERE e.tag = sparsest.tag AND (e.transaction_id, e.position) < (v_before, v_position)
            ORDER BY e.transaction_id DESC, e.position DESC
            OFFSET p_bound - 1
            LIMIT 1
        ) AS examined
    WHERE cardinality(item.tags) > 0 AND cardinality(item.tags) + cardinality(item.types) > 1
    ORDER BY examined.transaction_id DESC, examined.position DESC
    LIMIT 1;
END
$$;
