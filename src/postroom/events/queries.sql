-- Everything events asks of the database, in alphabetical order. `@room.` lets the same statement run on a caller's own
-- connection. JSON travels as text, so that it does not matter which codecs that connection has.

-- name: adopt_restored_events :one
-- Begin a new epoch if the room was restored into a younger cluster.
SELECT @room.adopt_restored_events(p_force => :force) AS was_restored;

-- name: append_events :one
-- Append events if nothing forbids it; see functions/append_events.sql. Our own transactions say first how patient they are;
-- a caller's has its own patience, and :is_patient is NULL.
SELECT CASE
    WHEN :is_patient::boolean IS NULL
        OR set_config('lock_timeout', @room.event_patience(:is_patient::boolean), true) IS NOT NULL
    THEN @room.append_events(
        p_types => :types::text[],
        p_tags => :tags::text[],
        p_data => :data::text[]::jsonb[],
        p_condition => :condition::text::jsonb,
        p_idempotency => :idempotency::text::jsonb,
        p_occurred_at => :occurred_at::timestamptz,
        p_correlation_ids => :correlation_ids::text[],
        p_causation_ids => :causation_ids::text[]
    )
END::text AS answer;

-- name: append_events_each :many
-- Append for many in one transaction, each judged by itself.
SELECT answer::text FROM @room.append_events_each(
    p_appends => :appends::text::jsonb, p_is_patient => :is_patient::boolean) AS answer;

-- name: begin_command :maybe
-- Record a command unless its id is known; waits for whoever is executing it, but a moment only if it is not patient. The
-- patience is that of the whole transaction, and taken first: locks look at it when they have to wait.
INSERT INTO @room.commands (transaction_id, type, command_id, data, metadata, occurred_at)
VALUES (
    CASE WHEN set_config('lock_timeout', @room.event_patience(:is_patient::boolean), true) IS NOT NULL
        THEN @room.event_transaction_id() END,
    :type, :command_id, :data::text::jsonb, :metadata::text::jsonb, coalesce(:occurred_at::timestamptz, now())
)
ON CONFLICT (command_id) DO NOTHING
RETURNING id;

-- name: find_command :maybe
-- What became of a command, where its facts end, and whether it asked for the same.
SELECT result::text, transaction_id::text::bigint AS transaction_id,
    (SELECT max(e.position) FROM @room.events AS e WHERE e.transaction_id = commands.transaction_id) AS position,
    type = :type AND data = :data::text::jsonb AS is_same
FROM @room.commands
WHERE command_id = :command_id;

-- name: find_head :one
-- The cursor of whoever has seen everything, and the largest position that is visible.
SELECT @room.event_cursor_now() AS cursor, (SELECT max(position) FROM @room.events) AS position;

-- name: finish_command :one
-- Keep what came of a command, and say where its facts end.
UPDATE @room.commands SET result = :result::text::jsonb
WHERE id = :id
RETURNING transaction_id::text::bigint AS transaction_id,
    (SELECT max(e.position) FROM @room.events AS e WHERE e.transaction_id = commands.transaction_id) AS position;

-- name: forget_follower :exec
-- A follower leaves, and with it those that have not been seen for a day.
DELETE FROM event_followers WHERE id = :id OR seen_at < now() - interval '1 day';

-- name: index_event_tags :exec
-- Make the index that serves `tags @> …` on events. The store itself reads event_tags and does not need it, and a batch
-- of appends costs about a tenth more CPU with it (17 and 19 µs per event in one run), so it is made only on request.
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_tags_idx ON events USING gin (tags);

-- name: list_audit :many
-- The audit log, newest first, below a cursor, by any of the filters.
SELECT id, at, actor, action, subject, before::text, after::text
FROM audit_log
WHERE (:subject::text IS NULL OR subject = :subject)
    AND (:actor::text IS NULL OR actor = :actor)
    AND (:action::text IS NULL OR action = :action OR starts_with(action, :action || '.'))
    AND (:recorded_from::timestamptz IS NULL OR at >= :recorded_from)
    AND (:recorded_before::timestamptz IS NULL OR at < :recorded_before)
    AND (:before_id::bigint IS NULL OR id < :before_id)
ORDER BY id DESC
LIMIT :page_limit;

-- name: list_commands :many
-- What was asked for and what came of it, newest first, of one transaction or of all.
SELECT id, transaction_id::text::bigint AS transaction_id, occurred_at, type, command_id, data::text, metadata::text, result::text
FROM commands
WHERE (:transaction_id::bigint IS NULL OR transaction_id = :transaction_id::bigint::text::xid8)
    AND (:before_id::bigint IS NULL OR id < :before_id)
ORDER BY id DESC
LIMIT :page_limit;

-- name: read_events :many
-- What matches and was not seen; see functions/read_events.sql.
SELECT position, transaction_id, occurred_at, type, tags, data, correlation_id, causation_id, until, own
FROM @room.read_events(:query::text::jsonb, :after::text, :page_limit::bigint, :is_settled::boolean);

-- name: read_events_backwards :many
-- The latest that match, newest first.
SELECT position, transaction_id, occurred_at, type, tags, data, correlation_id, causation_id, until::text, own
FROM @room.read_events_backwards(
    :query::text::jsonb, :after::text, :page_limit::bigint, :before_transaction_id::bigint::text::xid8, :before_position::bigint);

-- name: read_tag :one
-- A page of what is under one tag, from the beginning: read_events without its ceremony. What the statement sees is what
-- its snapshot shows, so nothing has to be left out. The page is one JSON text: it is taken apart several times faster
-- than rows are.
SELECT json_agg(page.event)::text AS events,
    (SELECT @room.event_snapshot()::text) AS until,
    (SELECT ((epoch::bigint << 48) + pg_current_xact_id_if_assigned()::text::bigint)::text::xid8 FROM @room.event_clock) AS own
FROM (
    SELECT json_build_array(
        e.position, e.transaction_id::text::bigint, e.occurred_at, e.type, e.tags, e.data, e.correlation_id, e.causation_id
    ) AS event
    FROM @room.event_tags AS t
        JOIN @room.events AS e ON e.position = t.position
    WHERE t.tag = :tag
    ORDER BY t.transaction_id, t.position
    LIMIT :page_limit::bigint + 1
) AS page;

-- name: record_audit :exec
-- Write an entry to the audit log; see functions/record_audit.sql.
SELECT record_audit(:actor, :action, :subject, :before::text::jsonb, :after::text::jsonb);

-- name: register_follower :one
-- A follower is there, awake.
INSERT INTO event_followers (name) VALUES (:name) RETURNING id;

-- name: set_follower_asleep :exec
-- Say whether a follower waits for a NOTIFY; after falling asleep it looks once more before it waits. Whoever falls asleep
-- forgets those that have not been seen for a day: if one of them lives, it registers again.
WITH forgotten AS (
    DELETE FROM event_followers WHERE :is_asleep::boolean AND id <> :id AND seen_at < now() - interval '1 day'
)
UPDATE event_followers SET is_asleep = :is_asleep, seen_at = now() WHERE id = :id;

-- name: take_turn :exec
-- Wait until whoever decides by this query has finished, but not for ever. A key that no append locks, taken before any
-- that one does: waiting for it cannot close a circle.
SELECT set_config('lock_timeout', '1s', true),
    pg_advisory_xact_lock(hashtextextended('turn ' || :key, hashtextextended(current_schema(), 0)));
