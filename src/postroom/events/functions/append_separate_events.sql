-- Check and write independent appends (are_separate_appends) whose locks are held, in one statement; answers in order.
CREATE OR REPLACE FUNCTION append_separate_events(
    p_appends jsonb, p_transaction_id xid8, p_horizon xid8, p_snapshot text
) RETURNS SETOF jsonb
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    WITH append AS MATERIALIZED (
        SELECT a.types[1] AS type, a.tags[1]::text[] AS tags, a.data -> 0 AS data, a.condition -> 'query' AS query,
            only_tag(a.condition -> 'query') AS asked, a.occurred_at, a.correlation_ids[1] AS correlation_id,
            a.causation_ids[1] AS causation_id, a.ordinal
        FROM ROWS FROM (jsonb_to_recordset(p_appends) AS (
                types text[], tags text[], data jsonb, condition jsonb, occurred_at timestamptz, correlation_ids text[],
                causation_ids text[]))
            WITH ORDINALITY AS a(types, tags, data, condition, occurred_at, correlation_ids, causation_ids, ordinal)
    ),
    free AS MATERIALIZED (
        SELECT nextval('events_position_seq') AS position, ordered.*
        FROM (
            SELECT *
            FROM append
            WHERE asked IS NULL OR NOT EXISTS (SELECT FROM event_tags AS t WHERE t.tag = append.asked)
            ORDER BY ordinal
        ) AS ordered
    ),
    written AS (
        INSERT INTO events (
            position, type, tags, data, transaction_id, horizon, occurred_at, correlation_id, causation_id
        )
        SELECT position, type, tags, data, p_transaction_id, p_horizon, coalesce(event_time(occurred_at), now()), correlation_id,
            causation_id
        FROM free
    ),
    tagged AS (
        INSERT INTO event_tags (tag, transaction_id, position, type)
        SELECT DISTINCT carried.tag, p_transaction_id, free.position, free.type
        FROM free, unnest(free.tags) AS carried(tag)
    )
    SELECT CASE
        WHEN free.position IS NULL THEN jsonb_build_object(
            'success', false, 'message', 'a matching event was appended since', 'events_count', 0,
            'error_code', 'DCB_VIOLATION', 'matched', find_matching_event(append.query, NULL))
        ELSE jsonb_build_object(
            'success', true, 'message', 'events appended successfully', 'events_count', 1, 'position', free.position,
            'transaction_id', p_transaction_id::text::bigint,
            'cursor', CASE WHEN append.asked IS NOT NULL
                THEN p_snapshot || format('///%s.%s', p_transaction_id, free.position) END)
        END
    FROM append
    LEFT JOIN free ON free.ordinal = append.ordinal
    ORDER BY append.ordinal;
END
$$;
