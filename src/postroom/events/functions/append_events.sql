-- Append events, all or none, if the conditions hold; in the caller's transaction, at any isolation level.
--     p_types, p_tags, p_data  one element per event; an element of p_tags is an array literal: {a=1,"b=Smith, John"}
--     p_condition              {"query": [items], "after": cursor}: no event matches that the cursor has not seen
--     p_idempotency            [items]: no event matches at all; checked first
--     p_in_order               make events of one tag visible in the order of their positions; see append_events_if
-- Items are those of event_query_items; a cursor is event_cursor_now() in the statement that reads, or a position.
-- Returns {"success": true, "events_count", "position", "transaction_id", "cursor"} or {"success": false, "error_code":
-- "IDEMPOTENCY_VIOLATION" | "DCB_VIOLATION", "matched": {"position", "type", "tags"}}. "cursor" has seen the events
-- that the condition had seen and these events: it is the "after" of the next append by the same query.
CREATE OR REPLACE FUNCTION append_events(
    p_types           text[],
    p_tags            text[],
    p_data            jsonb[],
    p_condition       jsonb       DEFAULT NULL,
    p_idempotency     jsonb       DEFAULT NULL,
    p_occurred_at     timestamptz DEFAULT NULL,
    p_correlation_ids text[]      DEFAULT NULL,
    p_causation_ids   text[]      DEFAULT NULL,
    p_in_order        boolean     DEFAULT false
) RETURNS jsonb
LANGUAGE plpgsql
SET search_path FROM CURRENT -- an application's connection has another search path
SET plan_cache_mode = force_generic_plan -- planning on every call would cost more than the rest of an append
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
SET enable_bitmapscan = off -- the same reason
AS $$
DECLARE
    v_shared    text[];
    v_literals  text[];
    v_tags      text[];
    v_exclusive text[] := '{}';
    v_answer    jsonb;
BEGIN
    PERFORM check_events(p_types, p_tags, p_data);
    IF array_dims(p_correlation_ids) <> array_dims(p_types) OR array_dims(p_causation_ids) <> array_dims(p_types) THEN
        RAISE EXCEPTION 'must have as many ids as events' USING ERRCODE = 'PR001',
            COLUMN = CASE WHEN array_dims(p_causation_ids) <> array_dims(p_types) THEN 'causation_ids' ELSE 'correlation_ids' END;
    END IF;
    IF has_restored_events() THEN
        PERFORM adopt_restored_events();
    END IF;
    v_literals := ARRAY(SELECT DISTINCT literal FROM unnest(p_tags) AS given(literal));
    IF cardinality(v_literals) > 128 THEN
        v_shared := '{}';
        v_exclusive := '{*}'; -- lock_events would decide the same after reading each of these tags
    ELSE
        v_tags := ARRAY(
            SELECT DISTINCT event_tag_key(carried.tag)
            FROM unnest(v_literals) AS l(literal), unnest(l.literal::text[]) AS carried(tag));
        v_shared := ARRAY['*'] || ARRAY(SELECT DISTINCT 'type ' || type FROM unnest(p_types) AS t(type));
        IF p_in_order THEN
            v_exclusive := v_tags;
        ELSE
            v_shared := v_shared || v_tags;
        END IF;
    END IF;
    IF p_condition IS NOT NULL THEN
        v_exclusive := v_exclusive || event_query_keys(p_condition -> 'query');
    END IF;
    IF p_idempotency IS NOT NULL THEN
        v_exclusive := v_exclusive || event_query_keys(p_idempotency);
    END IF;
    PERFORM lock_events(v_shared, v_exclusive);
    IF p_condition IS NOT NULL OR p_idempotency IS NOT NULL THEN
        PERFORM refuse_stale_snapshot();
    END IF;
    v_answer := append_locked_events(
        p_types, p_tags, p_data, p_condition, p_idempotency, p_occurred_at, p_correlation_ids, p_causation_ids);
    IF (v_answer -> 'success')::boolean THEN
        PERFORM wake_event_followers();
    END IF;
    RETURN v_answer;
END
$$;
