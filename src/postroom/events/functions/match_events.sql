-- The first events, in order, that match one query item and that a cursor has not seen. Reads and condition checks use
-- this same function.
--
-- p_from_… is the exclusive start of the search: every event before it has been seen by the cursor. p_until is the
-- snapshot that a read stays within; own events are read too. There is one statement for each kind of item, so that
-- each uses its own index with any plan.
CREATE OR REPLACE FUNCTION match_events(
    p_types               text[],
    p_tags                text[],
    p_seen                event_cursor,
    p_from_transaction_id xid8,
    p_from_position       bigint,
    p_until               pg_snapshot,
    p_own                 xid8,
    p_limit               bigint
) RETURNS TABLE (transaction_id xid8, "position" bigint)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    v_tag text := CASE WHEN cardinality(p_tags) > 0 THEN rarest_tag(p_tags, p_from_transaction_id, 5120) END;
BEGIN
    IF v_tag IS NOT NULL THEN
        RETURN QUERY
        SELECT e.transaction_id, e.position
        FROM event_tags AS e
        WHERE e.tag = v_tag
            AND (e.transaction_id, e.position) > (p_from_transaction_id, p_from_position)
            AND (p_types = '{}' OR e.type = ANY (p_types))
            AND (cardinality(p_tags) = 1 OR p_tags <@ (SELECT f.tags FROM events AS f WHERE f.position = e.position))
            AND NOT is_event_seen(e.transaction_id, e.position, p_seen)
            AND (pg_visible_in_snapshot(e.transaction_id, p_until) OR e.transaction_id = p_own)
        ORDER BY e.transaction_id, e.position
        LIMIT p_limit;
    ELSIF cardinality(p_types) > 0 THEN
        RETURN QUERY
        SELECT found.transaction_id, found.position
        FROM (SELECT DISTINCT unnest(p_types)) AS wanted(type), LATERAL (
            SELECT e.transaction_id, e.position
            FROM events AS e
            WHERE e.type BETWEEN wanted.type AND wanted.type -- for =, the planner may read all events in their order
                AND (e.transaction_id, e.position) > (p_from_transaction_id, p_from_position)
                AND NOT is_event_seen(e.transaction_id, e.position, p_seen)
                AND (pg_visible_in_snapshot(e.transaction_id, p_until) OR e.transaction_id = p_own)
            ORDER BY e.type, e.transaction_id, e.position
            LIMIT p_limit
        ) AS found
        ORDER BY found.transaction_id, found.position
        LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT e.transaction_id, e.position
        FROM events AS e
        WHERE (e.transaction_id, e.position) > (p_from_transaction_id, p_from_position)
            AND NOT is_event_seen(e.transaction_id, e.position, p_seen)
            AND (pg_visible_in_snapshot(e.transaction_id, p_until) OR e.transaction_id = p_own)
        ORDER BY e.transaction_id, e.position
        LIMIT p_limit;
    END IF;
END
$$;
