-- Events and facts about deliveries after a place and below a transaction, in order, at most p_limit of both together,
-- and whether each belongs to the topic. Facts are read from all_steps, only for a topic that may contain them;
-- `step` is the row of such a fact.
CREATE OR REPLACE FUNCTION scan_topic(
    p_topic outbox_topics, p_transaction_id xid8, p_position bigint, p_below xid8, p_limit bigint
) RETURNS TABLE (
    transaction_id xid8, "position" bigint, occurred_at timestamptz, type text, is_matched boolean, step all_steps
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- planning on every call would cost more than the query
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
SET enable_bitmapscan = off -- the same reason
AS $$
#variable_conflict use_column
DECLARE
    v_visible record;
BEGIN
    SELECT * INTO v_visible FROM visible_steps(p_topic.types);
    IF v_visible.steps IS NULL OR NOT topic_can_match_steps(p_topic) THEN
        RETURN QUERY
        SELECT e.transaction_id, e.position, e.occurred_at, e.type, outbox_topic_matches(p_topic, e.type, e.tags), NULL::all_steps
        FROM events AS e
        WHERE (e.transaction_id, e.position) > (p_transaction_id, p_position) AND e.transaction_id < p_below
        ORDER BY e.transaction_id, e.position
        LIMIT p_limit;
        RETURN;
    END IF;
    RETURN QUERY
    (
        SELECT e.transaction_id, e.position, e.occurred_at, e.type, outbox_topic_matches(p_topic, e.type, e.tags), NULL::all_steps
        FROM events AS e
        WHERE (e.transaction_id, e.position) > (p_transaction_id, p_position) AND e.transaction_id < p_below
        ORDER BY e.transaction_id, e.position
        LIMIT p_limit
    )
    UNION ALL
    (
        SELECT s.transaction_id, s.position, s.at, step_fact_type(s.step),
            coalesce(s.transaction_id >= v_visible.since[array_position(v_visible.steps, s.step)], false)
                AND outbox_topic_matches(p_topic, step_fact_type(s.step), step_fact_tags(s.delivery_id)), s
        FROM all_steps AS s
        WHERE (s.transaction_id, s.position) > (p_transaction_id, p_position) AND s.transaction_id < p_below
        ORDER BY s.transaction_id, s.position
        LIMIT p_limit
    )
    ORDER BY transaction_id, position
    LIMIT p_limit;
END
$$;
