-- Events that match a query and that the cursor has not seen, in the order (transaction_id, position). One row more
-- than requested means that the limit cut the read. `until` is the snapshot of the read and `own` its transaction; the
-- new cursor is made from them, the old cursor and the rows. Without events there is one row with these two alone.
--
-- A cut read continues within its first snapshot until that is exhausted: so pages neither overlap nor have gaps. With
-- p_is_settled only events below the oldest open transaction are read: followers read like this. A follower that begins
-- with the cursor of another read waits for the transactions that were open then. Before that, the union of both snapshots
-- would hide a step that neither shows (is_step_visible): one its writer, the other its place.
--
-- Facts about deliveries are read from all_steps, only for queries that may match them.
CREATE OR REPLACE FUNCTION read_events(
    p_query      jsonb,
    p_after      text    DEFAULT NULL,
    p_limit      bigint  DEFAULT NULL,
    p_is_settled boolean DEFAULT false
) RETURNS TABLE (
    until text, own xid8, "position" bigint, transaction_id xid8, occurred_at timestamptz, type text, tags text[],
    data text, correlation_id text, causation_id text
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT -- an application's connection has another search path
SET plan_cache_mode = force_generic_plan -- planning on every call would cost more than the rest of an append
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
SET enable_bitmapscan = off -- the same reason
AS $$
#variable_conflict use_column
DECLARE
    v_seen          event_cursor := parse_event_cursor(p_after);
    v_is_continued  boolean := v_seen.page_position > 0;
    v_until         pg_snapshot;
    v_until_text    text;
    v_own           xid8;
    v_tag           text;
    v_from          xid8 := CASE WHEN v_is_continued THEN v_seen.page_transaction_id ELSE pg_snapshot_xmin(v_seen.base) END;
    v_from_position bigint := v_seen.page_position;
BEGIN
    IF p_limit < 0 THEN
        RAISE EXCEPTION 'must not be negative' USING ERRCODE = 'PR001', COLUMN = 'limit';
    END IF;
    IF NOT p_is_settled THEN
        SELECT ((epoch::bigint << 48) + pg_current_xact_id_if_assigned()::text::bigint)::text::xid8 INTO v_own FROM event_clock;
    END IF;
    v_until := CASE
        WHEN v_is_continued THEN v_seen.page
        WHEN p_is_settled THEN CASE
            WHEN event_horizon() < pg_snapshot_xmax(v_seen.base) THEN v_seen.base -- nothing yet
            ELSE format('%1$s:%1$s:', event_horizon())::pg_snapshot
        END
        ELSE event_snapshot()
    END;
    v_until_text := v_until::text;
    IF v_seen.through_position > 0 THEN
        v_from := coalesce(
            (SELECT horizon FROM events WHERE position <= v_seen.through_position ORDER BY position DESC LIMIT 1), '0');
    END IF;
    v_tag := only_tag(p_query);
    IF position('=' IN v_tag) > 1 AND NOT can_match_steps('{}', ARRAY[v_tag]) THEN -- a tag without = is rejected below
        RETURN QUERY
        SELECT v_until_text, v_own, e.position, e.transaction_id, e.occurred_at, e.type, e.tags, e.data::text, e.correlation_id,
            e.causation_id
        FROM event_tags AS t
            JOIN events AS e ON e.position = t.position
        WHERE t.tag = v_tag
            AND (t.transaction_id, t.position) > (v_from, v_from_position)
            AND (p_after IS NULL OR NOT is_event_seen(t.transaction_id, t.position, v_seen))
            AND (pg_visible_in_snapshot(t.transaction_id, v_until) OR t.transaction_id = v_own)
        ORDER BY t.transaction_id, t.position
        LIMIT p_limit + 1;
        IF NOT FOUND THEN
            until := v_until_text; own := v_own;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;
    IF NOT names_steps(p_query) THEN
        RETURN QUERY
        SELECT v_until_text, v_own, e.position, e.transaction_id, e.occurred_at, e.type, e.tags, e.data::text, e.correlation_id,
            e.causation_id
        FROM (VALUES (true)) AS always(is_one)
            LEFT JOIN (
                SELECT DISTINCT m.transaction_id, m.position
                FROM event_query_items(p_query) AS item,
                    LATERAL match_events(item.types, item.tags, v_seen, v_from, v_from_position, v_until, v_own, p_limit + 1) AS m
                ORDER BY m.transaction_id, m.position
                LIMIT p_limit + 1
            ) AS matched ON always.is_one
            LEFT JOIN events AS e ON e.position = matched.position
        ORDER BY matched.transaction_id, matched.position;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT v_until_text, v_own, found.*
    FROM (VALUES (true)) AS always(is_one)
        LEFT JOIN (
            SELECT e.position, e.transaction_id, e.occurred_at, e.type, e.tags, e.data::text, e.correlation_id, e.causation_id
            FROM (
                SELECT DISTINCT m.transaction_id, m.position
                FROM event_query_items(p_query) AS item,
                    LATERAL match_events(item.types, item.tags, v_seen, v_from, v_from_position, v_until, v_own, p_limit + 1) AS m
                ORDER BY m.transaction_id, m.position
                LIMIT p_limit + 1
            ) AS matched
                JOIN events AS e ON e.position = matched.position
            UNION ALL
            SELECT (matched.step).position, (matched.step).transaction_id, (matched.step).at, step_fact_type((matched.step).step),
                step_fact_tags((matched.step).delivery_id), step_fact_data(matched.step)::text, NULL, NULL
            FROM (
                SELECT DISTINCT ON (s.transaction_id, s.position) s AS step
                FROM event_query_items(p_query) AS item,
                    LATERAL match_steps(item.types, item.tags, v_seen, v_from, v_from_position, v_until, v_own, p_limit + 1) AS s
                ORDER BY s.transaction_id, s.position
                LIMIT p_limit + 1
            ) AS matched
            ORDER BY transaction_id, position
            LIMIT p_limit + 1
        ) AS found ON always.is_one
    ORDER BY found.transaction_id, found.position;
END
$$;
