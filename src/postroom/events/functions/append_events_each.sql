-- Many independent appends in one transaction: one commit for all of them. Each succeeds or is rejected separately, in
-- the given order, and sees those before it. All locks are taken before the first append is checked, so that two such
-- calls cannot deadlock. Lock waits end with 55P03, after a short timeout unless p_is_patient: an append that waits for
-- a long transaction must not delay the others.
--
-- The caller has validated the events (postroom.events.model); the constraints of the tables hold in any case. An
-- append is {"types": […], "tags": [literals], "data": […], "condition", "idempotency", "occurred_at",
-- "correlation_ids", "causation_ids"}, the last five as in append_events and optional. Returns the answers of
-- append_events.
CREATE OR REPLACE FUNCTION append_events_each(p_appends jsonb, p_is_patient boolean) RETURNS SETOF jsonb
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan -- planning on every call would cost more than the rest of an append
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
SET enable_bitmapscan = off -- the same reason
AS $$
DECLARE
    v_shared         text[];
    v_exclusive      text[];
    v_append         record;
    v_queries        jsonb[];
    v_query          jsonb;
    v_patience       CONSTANT text := current_setting('lock_timeout');
    v_snapshot       text;
    v_transaction_id xid8;
    v_horizon        xid8;
BEGIN
    IF has_restored_events() THEN
        PERFORM adopt_restored_events();
    END IF;
    SELECT ARRAY['*'] || array_agg(DISTINCT key.name) INTO v_shared
    FROM jsonb_to_recordset(p_appends) AS append(types text[], tags text[]), LATERAL (
        SELECT 'type ' || type FROM unnest(append.types) AS t(type)
        UNION ALL
        SELECT event_tag_key(carried.tag) FROM unnest(append.tags) AS l(literal), unnest(literal::text[]) AS carried(tag)
    ) AS key(name);
    SELECT coalesce(array_agg(event_tag_key(asked.tag)) FILTER (WHERE asked.tag IS NOT NULL), '{}'),
        coalesce(array_agg(asked.query) FILTER (WHERE asked.tag IS NULL), '{}')
    INTO v_exclusive, v_queries
    FROM (
        SELECT q.query, only_tag(q.query) AS tag
        FROM jsonb_array_elements(p_appends) AS append(value),
            LATERAL (VALUES (value #> '{condition,query}'), (value -> 'idempotency')) AS q(query)
        WHERE jsonb_typeof(q.query) <> 'null'
    ) AS asked;
    IF EXISTS (SELECT FROM unnest(v_exclusive) AS asked(key) WHERE key = event_tag_key('postroom.delivery=')) THEN
        PERFORM refuse_step_condition();
    END IF;
    FOREACH v_query IN ARRAY v_queries LOOP
        v_exclusive := v_exclusive || event_query_keys(v_query);
    END LOOP;
    PERFORM set_config('lock_timeout', event_patience(p_is_patient), true); -- for these locks only
    PERFORM lock_events(v_shared, v_exclusive);
    PERFORM set_config('lock_timeout', v_patience, true);
    IF v_exclusive <> '{}' THEN -- there is a condition or an idempotency query
        PERFORM refuse_stale_snapshot();
    END IF;
    -- One snapshot check for all: without our locks no transaction can add an event that these conditions match.
    v_snapshot := event_snapshot()::text;
    v_transaction_id := event_transaction_id();
    v_horizon := event_horizon();
    IF are_separate_appends(p_appends) THEN
        RETURN QUERY SELECT append_separate_events(p_appends, v_transaction_id, v_horizon, v_snapshot);
        PERFORM wake_event_followers();
        RETURN;
    END IF;
    FOR v_append IN
        SELECT append.*, ARRAY(SELECT value FROM jsonb_array_elements(append.data)) AS contents
        FROM jsonb_to_recordset(p_appends) AS append(
            types text[], tags text[], data jsonb, condition jsonb, idempotency jsonb, occurred_at timestamptz,
            correlation_ids text[], causation_ids text[])
    LOOP
        RETURN NEXT append_locked_events(
            v_append.types, v_append.tags, v_append.contents, v_append.condition, v_append.idempotency,
            v_append.occurred_at, v_append.correlation_ids, v_append.causation_ids, v_transaction_id, v_horizon, v_snapshot);
    END LOOP;
    PERFORM wake_event_followers();
END
$$;
