-- Append events if no event of these types (NULL or empty: any) with all of these tags (NULL or empty: any) has a
-- position above the cursor (NULL: exists at all), and none matches the idempotency query, which covers all events.
-- Without types, tags and cursor the append is unconditional.
--
-- The cursor is the largest position among the events that were read. It is exact as long as events of one tag become
-- visible in the order of their positions: this function and append_events_batch ensure that, at the price that appends
-- with the same tag wait for each other. Beside append_events, which does not wait, or without tags, a position does
-- not show that an event was uncommitted during the read: use append_events and its cursor there.
CREATE OR REPLACE FUNCTION append_events_if(
    p_types                 text[],
    p_tags                  text[],
    p_data                  jsonb[],
    p_event_types           text[]      DEFAULT NULL,
    p_condition_tags        text[]      DEFAULT NULL,
    p_after_cursor_position bigint      DEFAULT NULL,
    p_idempotency_types     text[]      DEFAULT NULL,
    p_idempotency_tags      text[]      DEFAULT NULL,
    p_occurred_at           timestamptz DEFAULT NULL
) RETURNS jsonb
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_condition   jsonb;
    v_idempotency jsonb;
BEGIN
    IF cardinality(p_event_types) > 0 OR cardinality(p_condition_tags) > 0 OR p_after_cursor_position IS NOT NULL THEN
        v_condition := jsonb_build_object(
            'query', jsonb_build_array(jsonb_build_object(
                'types', coalesce(p_event_types, '{}'), 'tags', coalesce(p_condition_tags, '{}'))),
            'after', greatest(p_after_cursor_position, 0));
    END IF;
    IF cardinality(p_idempotency_types) > 0 OR cardinality(p_idempotency_tags) > 0 THEN
        v_idempotency := jsonb_build_array(jsonb_build_object(
            'types', coalesce(p_idempotency_types, '{}'), 'tags', coalesce(p_idempotency_tags, '{}')));
    END IF;
    RETURN append_events(p_types, p_tags, p_data, v_condition, v_idempotency, p_occurred_at, p_in_order => true);
END
$$;
