-- Check and write one append whose locks are held; see append_events for its parameters and answer. The last three are
-- values shared by many appends of one transaction, to avoid computing them for each. Duplicates are checked before the
-- condition: a repeated request must be reported as a duplicate, not as a conflict with its own first append.
CREATE OR REPLACE FUNCTION append_locked_events(
    p_types           text[],
    p_tags            text[],
    p_data            jsonb[],
    p_condition       jsonb,
    p_idempotency     jsonb,
    p_occurred_at     timestamptz,
    p_correlation_ids text[],
    p_causation_ids   text[],
    p_transaction_id  xid8 DEFAULT NULL,
    p_horizon         xid8 DEFAULT NULL,
    p_snapshot        text DEFAULT NULL
) RETURNS jsonb
LANGUAGE plpgsql
AS $$
DECLARE
    v_transaction_id xid8;
    v_horizon        xid8;
    v_matched        jsonb;
    v_cursor         text;
    v_occurred_at    timestamptz;
    v_written        record;
BEGIN
    IF p_idempotency IS NOT NULL THEN
        v_matched := find_matching_event(p_idempotency, NULL);
        IF v_matched IS NOT NULL THEN
            RETURN jsonb_build_object('success', false, 'message', 'duplicate operation detected',
                'events_count', 0, 'error_code', 'IDEMPOTENCY_VIOLATION', 'matched', v_matched);
        END IF;
    END IF;
    IF p_condition IS NOT NULL THEN
        v_matched := find_matching_event(p_condition -> 'query', p_condition ->> 'after');
        IF v_matched IS NOT NULL THEN
            RETURN jsonb_build_object('success', false, 'message', 'a matching event was appended since',
                'events_count', 0, 'error_code', 'DCB_VIOLATION', 'matched', v_matched);
        END IF;
        v_cursor := coalesce(p_snapshot, event_snapshot()::text);
    END IF;

    v_transaction_id := coalesce(p_transaction_id, event_transaction_id());
    v_horizon := coalesce(p_horizon, event_horizon()); -- before positions are assigned
    v_occurred_at := coalesce(event_time(p_occurred_at), now());
    IF cardinality(p_types) = 1 THEN -- most appends have one event
        INSERT INTO events (type, tags, data, transaction_id, horizon, occurred_at, correlation_id, causation_id)
        VALUES (p_types[1], p_tags[1]::text[], p_data[1], v_transaction_id, v_horizon,
            v_occurred_at, p_correlation_ids[1], p_causation_ids[1])
        RETURNING 1::bigint AS events_count, position AS last_position INTO v_written;
        INSERT INTO event_tags (tag, transaction_id, position, type)
        SELECT DISTINCT carried.tag, v_transaction_id, v_written.last_position, p_types[1]
        FROM unnest(p_tags[1]::text[]) AS carried(tag);
    ELSE
        WITH appended AS (
            INSERT INTO events (type, tags, data, transaction_id, horizon, occurred_at, correlation_id, causation_id)
            SELECT given.type, given.tags::text[], given.data, v_transaction_id, v_horizon,
                v_occurred_at, given.correlation_id, given.causation_id
            FROM unnest(p_types, p_tags, p_data, p_correlation_ids, p_causation_ids) WITH ORDINALITY
                AS given(type, tags, data, correlation_id, causation_id, place)
            ORDER BY given.place
            RETURNING position, type, tags
        ),
        tagged AS (
            INSERT INTO event_tags (tag, transaction_id, position, type)
            SELECT DISTINCT carried.tag, v_transaction_id, appended.position, appended.type
            FROM appended, unnest(appended.tags) AS carried(tag)
        )
        SELECT count(*) AS events_count, max(position) AS last_position INTO v_written FROM appended;
    END IF;

    RETURN jsonb_build_object('success', true, 'message', 'events appended successfully',
        'events_count', v_written.events_count, 'position', v_written.last_position,
        'transaction_id', v_transaction_id::text::bigint,
        'cursor', v_cursor || format('///%s.%s', v_transaction_id, v_written.last_position));
END
$$;
