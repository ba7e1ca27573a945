-- The last events, newest first, that match one query item, lie before a place, and that a cursor has not seen; the
-- counterpart of match_events. With p_since, a search reads the events of the sparsest tag since that transaction; see find_search_end.
CREATE OR REPLACE FUNCTION match_events_backwards(
    p_types                 text[],
    p_tags                  text[],
    p_seen                  event_cursor,
    p_before_transaction_id xid8,
    p_before_position       bigint,
    p_until                 pg_snapshot,
    p_own                   xid8,
    p_limit                 bigint,
    p_since                 xid8
) RETURNS TABLE (transaction_id xid8, "position" bigint)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    v_tag text := CASE
        WHEN cardinality(p_tags) = 0 THEN NULL
        WHEN p_since IS NULL THEN rarest_tag(p_tags, p_longest => 5120)
        ELSE sparsest_tag(p_tags, p_before_transaction_id, p_before_position)
    END;
BEGIN
    IF v_tag IS NOT NULL THEN
        RETURN QUERY
        SELECT e.transaction_id, e.position
        FROM event_tags AS e
        WHERE e.tag = v_tag AND e.transaction_id >= coalesce(p_since, '0')
            AND (e.transaction_id, e.position) < (p_before_transaction_id, p_before_position)
            AND (p_types = '{}' OR e.type = ANY (p_types))
            AND (cardinality(p_tags) = 1 OR p_tags <@ (SELECT f.tags FROM events AS f WHERE f.position = e.position))
            AND NOT is_event_seen(e.transaction_id, e.position, p_seen)
            AND (pg_visible_in_snapshot(e.transaction_id, p_until) OR e.transaction_id = p_own)
        ORDER BY e.transaction_id DESC, e.position DESC
        LIMIT p_limit;
    ELSIF cardinality(p_types) > 0 THEN
        RETURN QUERY
        SELECT found.transaction_id, found.position
        FROM (SELECT DISTINCT unnest(p_types)) AS wanted(type), LATERAL (
            SELECT e.transaction_id, e.position
            FROM events AS e
            WHERE e.type BETWEEN wanted.type AND wanted.type -- for =, the planner may read all events in their order
                AND (e.transaction_id, e.position) < (p_before_transaction_id, p_before_position)
                AND NOT is_event_seen(e.transaction_id, e.position, p_seen)
                AND (pg_visible_in_snapshot(e.transaction_id, p_until) OR e.transaction_id = p_own)
            ORDER BY e.type DESC, e.transaction_id DESC, e.position DESC
            LIMIT p_limit
        ) AS found
        ORDER BY found.transaction_id DESC, found.position DESC
        LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT e.transaction_id, e.position
        FROM events AS e
        WHERE (e.transaction_id, e.position) < (p_before_transaction_id, p_before_position)
            AND NOT is_event_seen(e.transaction_id, e.position, p_seen)
            AND (pg_visible_in_snapshot(e.transaction_id, p_until) OR e.transaction_id = p_own)
        ORDER BY e.transaction_id DESC, e.position DESC
        LIMIT p_limit;
    END IF;
END
$$;
