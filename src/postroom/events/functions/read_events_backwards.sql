-- The latest events that match a query, newest first, before a place if one is given; see read_events. With p_since, a search
-- of events, those of older transactions may be missing: see find_search_end.
CREATE OR REPLACE FUNCTION read_events_backwards(
    p_query                 jsonb,
    p_after                 text   DEFAULT NULL,
    p_limit                 bigint DEFAULT NULL,
    p_before_transaction_id xid8   DEFAULT NULL,
    p_before_position       bigint DEFAULT NULL,
    p_since                 xid8   DEFAULT NULL
) RETURNS TABLE (
    until pg_snapshot, own xid8, "position" bigint, transaction_id xid8, occurred_at timestamptz, type text, tags text[],
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
    v_seen   event_cursor := parse_event_cursor(p_after);
    v_until  pg_snapshot := event_snapshot();
    v_own    xid8;
    v_before xid8 := coalesce(p_before_transaction_id, '9223372036854775807');
BEGIN
    IF p_limit < 0 THEN
        RAISE EXCEPTION 'must not be negative' USING ERRCODE = 'PR001', COLUMN = 'limit';
    END IF;
    SELECT ((epoch::bigint << 48) + pg_current_xact_id_if_assigned()::text::bigint)::text::xid8 INTO v_own FROM event_clock;
    IF NOT names_steps(p_query) THEN
        RETURN QUERY
        SELECT v_until, v_own, e.position, e.transaction_id, e.occurred_at, e.type, e.tags, e.data::text, e.correlation_id,
            e.causation_id
        FROM (VALUES (true)) AS always(is_one)
            LEFT JOIN (
                SELECT DISTINCT m.transaction_id, m.position
                FROM event_query_items(p_query) AS item,
                    LATERAL match_events_backwards(
                        item.types, item.tags, v_seen, v_before, coalesce(p_before_position, 0), v_until, v_own, p_limit,
                        p_since) AS m
                ORDER BY m.transaction_id DESC, m.position DESC
                LIMIT p_limit
            ) AS matched ON always.is_one
            LEFT JOIN events AS e ON e.position = matched.position
        ORDER BY matched.transaction_id DESC, matched.position DESC;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT v_until, v_own, found.*
    FROM (VALUES (true)) AS always(is_one)
        LEFT JOIN (
            SELECT e.position, e.transaction_id, e.occurred_at, e.type, e.tags, e.data::text, e.correlation_id, e.causation_id
            FROM (
                SELECT DISTINCT m.transaction_id, m.position
                FROM event_query_items(p_query) AS item,
                    LATERAL match_events_backwards(
                        item.types, item.tags, v_seen, v_before, coalesce(p_before_position, 0), v_until, v_own, p_limit,
                        p_since) AS m
                ORDER BY m.transaction_id DESC, m.position DESC
                LIMIT p_limit
            ) AS matched
                JOIN events AS e ON e.position = matched.position
            UNION ALL
            SELECT (matched.step).position, (matched.step).transaction_id, (matched.step).at, step_fact_type((matched.step).step),
                step_fact_tags((matched.step).delivery_id), step_fact_data(matched.step)::text, NULL, NULL
            FROM (
                SELECT DISTINCT ON (s.transaction_id, s.position) s AS step
                FROM event_query_items(p_query) AS item,
                    LATERAL match_steps_backwards(
                        item.types, item.tags, v_seen, v_before, coalesce(p_before_position, 0), v_until, v_own, p_limit) AS s
                ORDER BY s.transaction_id DESC, s.position DESC
                LIMIT p_limit
            ) AS matched
            ORDER BY transaction_id DESC, position DESC
            LIMIT p_limit
        ) AS found ON always.is_one
    ORDER BY found.transaction_id DESC, found.position DESC;
END
$$;
