-- The first event that matches a query and that the cursor has not seen, for the error of a rejected append:
-- {"position", "type", "tags"}, or NULL. It sees all committed events, and never waits for unrelated transactions: the
-- horizon of followers does not apply here.
CREATE OR REPLACE FUNCTION find_matching_event(p_query jsonb, p_after text) RETURNS jsonb
LANGUAGE plpgsql
AS $$
DECLARE
    v_everything CONSTANT pg_snapshot := '9223372036854775806:9223372036854775806:';
    v_seen  event_cursor := parse_event_cursor(p_after);
    v_from  xid8 := pg_snapshot_xmin(v_seen.base);
    v_tag   text;
    v_item  record;
    v_found jsonb;
BEGIN
    v_tag := only_tag(p_query);
    IF p_after IS NULL AND v_tag IS NOT NULL THEN
        SELECT jsonb_build_object('position', e.position, 'type', e.type, 'tags', e.tags)
        INTO v_found
        FROM (SELECT t.position FROM event_tags AS t WHERE t.tag = v_tag
            ORDER BY t.transaction_id, t.position LIMIT 1) AS first
            JOIN events AS e ON e.position = first.position;
        RETURN v_found;
    END IF;
    IF v_seen.through_position > 0 THEN
        SELECT horizon INTO v_from FROM events WHERE position <= v_seen.through_position ORDER BY position DESC LIMIT 1;
    END IF;
    FOR v_item IN
        SELECT types, tags FROM event_query_items(p_query)
    LOOP
        SELECT jsonb_build_object('position', e.position, 'type', e.type, 'tags', e.tags)
        INTO v_found
        FROM match_events(v_item.types, v_item.tags, v_seen, coalesce(v_from, '0'), 0, v_everything, NULL, 1) AS m
            JOIN events AS e ON e.position = m.position;
        EXIT WHEN v_found IS NOT NULL;
    END LOOP;
    RETURN v_found;
END
$$;
