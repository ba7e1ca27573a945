-- The last steps, newest first, whose facts match one query item, lie before a place, and that a cursor has not seen;
-- the counterpart of match_steps.
CREATE OR REPLACE FUNCTION match_steps_backwards(
    p_types                 text[],
    p_tags                  text[],
    p_seen                  event_cursor,
    p_before_transaction_id xid8,
    p_before_position       bigint,
    p_until                 pg_snapshot,
    p_own                   xid8,
    p_limit                 bigint
) RETURNS SETOF all_steps
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_visible record;
BEGIN
    IF NOT can_match_steps(p_types, p_tags) THEN
        RETURN;
    END IF;
    SELECT * INTO v_visible FROM visible_steps(p_types);
    IF v_visible.steps IS NULL THEN
        RETURN;
    ELSIF p_tags <> '{}' THEN
        RETURN QUERY
        SELECT s.*
        FROM ( -- OFFSET keeps the planner from reading all steps in order until it has found those of the delivery
            SELECT * FROM all_steps
            WHERE delivery_id >> 6 = split_part(p_tags[1], '=', 2)::bigint >> 6
                AND delivery_id = split_part(p_tags[1], '=', 2)::bigint
            OFFSET 0
        ) AS s
        WHERE (s.transaction_id, s.position) < (p_before_transaction_id, p_before_position)
            AND s.transaction_id >= v_visible.since[array_position(v_visible.steps, s.step)]
            AND NOT is_step_seen(s.transaction_id, s.position, s.written_by, p_seen)
            AND (is_step_visible(s.transaction_id, s.written_by, p_until) OR s.transaction_id = p_own)
        ORDER BY s.transaction_id DESC, s.position DESC
        LIMIT p_limit;
    ELSIF NOT v_visible.steps && '{accepted,sent}' THEN
        RETURN QUERY
        SELECT found.*
        FROM unnest(v_visible.steps) AS wanted(step), LATERAL (
            SELECT s.*
            FROM all_steps AS s
            WHERE s.step = wanted.step AND s.step NOT IN ('accepted', 'sent') -- the predicate of the index
                AND (s.transaction_id, s.position) < (p_before_transaction_id, p_before_position)
                AND s.transaction_id >= v_visible.since[array_position(v_visible.steps, s.step)]
                AND NOT is_step_seen(s.transaction_id, s.position, s.written_by, p_seen)
                AND (is_step_visible(s.transaction_id, s.written_by, p_until) OR s.transaction_id = p_own)
            ORDER BY s.transaction_id DESC, s.position DESC
            LIMIT p_limit
        ) AS found
        ORDER BY found.transaction_id DESC, found.position DESC
        LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT s.*
        FROM all_steps AS s
        WHERE (s.transaction_id, s.position) < (p_before_transaction_id, p_before_position)
            AND s.transaction_id >= v_visible.since[array_position(v_visible.steps, s.step)]
            AND NOT is_step_seen(s.transaction_id, s.position, s.written_by, p_seen)
            AND (is_step_visible(s.transaction_id, s.written_by, p_until) OR s.transaction_id = p_own)
        ORDER BY s.transaction_id DESC, s.position DESC
        LIMIT p_limit;
    END IF;
END
$$;
