-- Append Postroom's own events, any number at once, in the transaction that makes them true. Their tag keys begin with
-- `postroom.`, and such tags are locked by key (see event_tag_key), so that five hundred deliveries finished together
-- take a handful of locks. p_types, p_data: one element per event; p_ids: the number after `<p_tag_key>=`.
CREATE OR REPLACE FUNCTION append_facts(p_tag_key text, p_types text[], p_ids bigint[], p_data jsonb[]) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan -- planning on every call would cost more than the rest of an append
AS $$
DECLARE
    v_transaction_id xid8;
    v_horizon        xid8;
BEGIN
    IF has_restored_events() THEN
        PERFORM adopt_restored_events();
    END IF;
    PERFORM lock_events(
        ARRAY['*', event_tag_key(p_tag_key || '=')] || ARRAY(SELECT DISTINCT 'type ' || type FROM unnest(p_types) AS t(type)), '{}');
    v_transaction_id := event_transaction_id();
    v_horizon := event_horizon(); -- before positions are assigned
    WITH appended AS (
        INSERT INTO events (type, tags, data, transaction_id, horizon)
        SELECT type, ARRAY[p_tag_key || '=' || id], data, v_transaction_id, v_horizon
        FROM unnest(p_types, p_ids, p_data) AS fact(type, id, data)
        RETURNING position, type, tags
    )
    INSERT INTO event_tags (tag, transaction_id, position, type)
    SELECT tags[1], v_transaction_id, position, type
    FROM appended;
    PERFORM wake_event_followers();
END
$$;
