-- The next events of a topic for a publisher, in order, below the oldest open transaction. Every row also has the
-- publisher's position and the end of the scan; without events there is one row with these alone. Nothing is read for a
-- publisher that is not ACTIVE.
--
-- The scan covers at most p_scan_limit events. end_… is the last event returned if p_limit cut the result, otherwise
-- the last event scanned: a topic that matches few events moves past all the others. `has_unsettled` means that an
-- older, open transaction holds back committed events.
CREATE OR REPLACE FUNCTION follow_topic(p_topic text, p_publisher text, p_limit bigint, p_scan_limit bigint)
RETURNS TABLE (
    status text, leader_instance text, last_transaction_id xid8, last_position bigint, end_transaction_id xid8,
    end_position bigint, scanned bigint, has_unsettled boolean, horizon xid8, newest xid8, "position" bigint,
    transaction_id xid8, occurred_at timestamptz, type text, tags text[], data text, correlation_id text, causation_id text
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan -- planning on every call would cost more than the query
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
SET enable_bitmapscan = off -- the same reason
AS $$
#variable_conflict use_column
DECLARE
    v_progress outbox_topic_progress;
    v_topic    outbox_topics;
    v_has_steps boolean;
    v_horizon  xid8 := event_horizon();
    v_newest   xid8 := (SELECT ((epoch::bigint << 48) + pg_snapshot_xmax(pg_current_snapshot())::text::bigint)::text::xid8
        FROM event_clock);
BEGIN
    SELECT * INTO v_progress FROM outbox_topic_progress WHERE topic = p_topic AND publisher = p_publisher;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO v_topic FROM outbox_topics WHERE name = p_topic;
    v_has_steps := topic_can_match_steps(v_topic);
    RETURN QUERY
    WITH scanned AS MATERIALIZED (
        SELECT n.transaction_id, n.position, n.is_matched, n.step
        FROM scan_topic(v_topic, v_progress.last_transaction_id, v_progress.last_position, v_horizon, p_scan_limit) AS n
        WHERE v_progress.status = 'ACTIVE'
    ),
    matched AS MATERIALIZED (
        SELECT s.transaction_id, s.position, s.step
        FROM scanned AS s
        WHERE s.is_matched
        ORDER BY s.transaction_id, s.position
        LIMIT p_limit
    ),
    reached AS (
        (SELECT m.transaction_id, m.position FROM matched AS m WHERE (SELECT count(*) FROM matched) = p_limit
            ORDER BY m.transaction_id DESC, m.position DESC LIMIT 1)
        UNION ALL
        (SELECT s.transaction_id, s.position FROM scanned AS s WHERE (SELECT count(*) FROM matched) < p_limit
            ORDER BY s.transaction_id DESC, s.position DESC LIMIT 1)
    )
    SELECT v_progress.status, v_progress.leader_instance, v_progress.last_transaction_id, v_progress.last_position,
        coalesce(reached.transaction_id, v_progress.last_transaction_id),
        coalesce(reached.position, v_progress.last_position),
        (SELECT count(*) FROM scanned),
        EXISTS (
            SELECT FROM events AS e
            WHERE e.transaction_id >= v_horizon
                AND (e.transaction_id, e.position) > (v_progress.last_transaction_id, v_progress.last_position)
        ) OR (v_has_steps AND EXISTS (
            SELECT FROM all_steps AS s
            WHERE s.transaction_id >= v_horizon
                AND (s.transaction_id, s.position) > (v_progress.last_transaction_id, v_progress.last_position)
        )),
        v_horizon, v_newest,
        matched.position, matched.transaction_id, coalesce(e.occurred_at, (matched.step).at),
        coalesce(e.type, step_fact_type((matched.step).step)), coalesce(e.tags, step_fact_tags((matched.step).delivery_id)),
        coalesce(e.data, step_fact_data(matched.step))::text, e.correlation_id, e.causation_id
    FROM (VALUES (true)) AS always(is_one)
        LEFT JOIN reached ON always.is_one
        LEFT JOIN matched ON always.is_one
        LEFT JOIN events AS e ON e.position = matched.position AND (matched.step).position IS NULL
    ORDER BY matched.transaction_id, matched.position;
END
$$;
