-- The statements of events, in alphabetical order. `@room.` lets a statement run on a caller's own connection. JSON is
-- passed as text, so that the codecs of that connection do not matter.

-- name: adopt_restored_events :one
-- Begin a new epoch if the room was restored into another cluster.
SELECT @room.adopt_restored_events(p_force => :force) AS was_restored;

-- name: append_events :one
-- Append events if the conditions hold; see functions/append_events.sql. Postroom's own transactions set their lock
-- timeout first; a caller's transaction keeps its own, and :is_patient is NULL.
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
-- Many appends in one transaction, each checked separately.
SELECT answer::text FROM @room.append_events_each(
    p_appends => :appends::text::jsonb, p_is_patient => :is_patient::boolean) AS answer;

-- name: begin_command :maybe
-- Record a command unless its id exists; waits while another transaction executes it, up to the lock timeout. The
-- timeout is that of the whole transaction, and set first, because locks read it when they begin to wait.
INSERT INTO @room.commands (transaction_id, type, command_id, data, metadata, occurred_at)
VALUES (
    CASE WHEN set_config('lock_timeout', @room.event_patience(:is_patient::boolean), true) IS NOT NULL
        THEN @room.event_transaction_id() END,
    :type, :command_id, :data::text::jsonb, :metadata::text::jsonb, coalesce(:occurred_at::timestamptz, now())
)
ON CONFLICT (command_id) DO NOTHING
RETURNING id;

-- name: delete_old_facts :one
-- One bounded step of retention for Postroom's own facts of feedback and tracking, oldest first; see
-- functions/delete_old_facts.sql.
SELECT delete_old_facts(coalesce(:now::timestamptz, now()) - :retention::interval, :batch_limit) AS deleted;

-- name: find_command :maybe
-- The result of a command, the place of its last event, and whether the request was the same.
SELECT result::text, transaction_id::text::bigint AS transaction_id,
    @room.last_position_in(commands.transaction_id) AS position,
    type = :type AND data = :data::text::jsonb AS is_same
FROM @room.commands
WHERE command_id = :command_id;

-- name: find_head :one
-- The cursor after all visible events, and the largest visible position.
SELECT @room.event_cursor_now() AS cursor, @room.last_event_position() AS position;

-- name: find_place_at :maybe
-- The place of the first event or step, in the order of the store, that occurred at a time or later.
SELECT transaction_id::text::bigint AS transaction_id, position FROM find_place_at(:at::timestamptz);

-- name: find_search_end :maybe
-- The place where a search ends that reads a bounded number of events; no row if it reads to the beginning.
SELECT transaction_id::text::bigint AS transaction_id, position
FROM @room.find_search_end(
    :query::text::jsonb, :bound::bigint, :before_transaction_id::bigint::text::xid8, :before_position::bigint);

-- name: finish_command :one
-- Store the result of a command; returns the place of its last event.
UPDATE @room.commands SET result = :result::text::jsonb
WHERE id = :id
RETURNING transaction_id::text::bigint AS transaction_id,
    @room.last_position_in(commands.transaction_id) AS position;

-- name: forget_follower :exec
-- Delete a follower, and followers that have not been seen for a day.
DELETE FROM event_followers WHERE id = :id OR seen_at < now() - interval '1 day';

-- name: index_event_tags :exec
-- Create the index for `tags @> …` on events in a room that had too many events for the migration to build it. A batch of
-- appends costs about a tenth more CPU with it (17 and 19 µs per event in one run).
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_tags_idx ON events USING gin (tags);

-- name: list_audit :many
-- The audit log, newest first, below a cursor: found by the first filter that is given, filtered by
-- the others; see `runtime.page.search_page`. An action
-- that is a group has no entries of its own. Ids follow times except where transactions overlap: the first and last
-- thousand entries of a period include its smallest and its largest id.
WITH period AS MATERIALIZED (
    SELECT
        coalesce((
            SELECT max(id) + 1
            FROM (SELECT id FROM audit_log WHERE at < :recorded_before::timestamptz ORDER BY at DESC LIMIT 1000) AS last
        ), CASE WHEN :recorded_before IS NULL THEN 9223372036854775807 ELSE 0 END) AS before_id,
        coalesce((
            SELECT min(id)
            FROM (SELECT id FROM audit_log WHERE at >= :recorded_from::timestamptz ORDER BY at LIMIT 1000) AS first
        ), CASE WHEN :recorded_from IS NULL THEN 0 ELSE 9223372036854775807 END) AS first_id
),
bounds AS MATERIALIZED (
    SELECT least(before_id, :before_id::bigint) AS before_id, first_id FROM period
)
SELECT id, at, actor, action, subject, before::text, after::text, is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place,
        (:actor::text IS NULL OR actor = :actor)
        AND (:action::text IS NULL OR action = :action OR starts_with(action, :action || '.'))
        AND (:recorded_from IS NULL OR at >= :recorded_from)
        AND (:recorded_before IS NULL OR at < :recorded_before) AS is_match
    FROM (
        (SELECT * FROM audit_log
        WHERE (subject, id) < (:subject::text, (SELECT before_id FROM bounds))
            AND (subject, id) >= (:subject, (SELECT first_id FROM bounds))
        ORDER BY subject DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM audit_log
        WHERE :subject IS NULL AND (actor, id) < (:actor, (SELECT before_id FROM bounds))
            AND (actor, id) >= (:actor, (SELECT first_id FROM bounds))
        ORDER BY actor DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM audit_log
        WHERE :subject IS NULL AND :actor IS NULL AND (action, id) < (:action, (SELECT before_id FROM bounds))
            AND (action, id) >= (:action, (SELECT first_id FROM bounds))
        ORDER BY action DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM audit_log
        WHERE :subject IS NULL AND :actor IS NULL AND NOT EXISTS (SELECT FROM audit_log AS a WHERE a.action = :action)
            AND (split_part(action, '.', 1), id) < (split_part(:action, '.', 1), (SELECT before_id FROM bounds))
            AND (split_part(action, '.', 1), id) >= (split_part(:action, '.', 1), (SELECT first_id FROM bounds))
        ORDER BY split_part(action, '.', 1) DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM audit_log
        WHERE :subject IS NULL AND :actor IS NULL AND :action IS NULL
            AND id < (SELECT before_id FROM bounds) AND id >= (SELECT first_id FROM bounds)
        ORDER BY id DESC LIMIT :bound::bigint)
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: list_commands :many
-- Commands with their results, newest first, of one transaction or of all.
SELECT id, transaction_id::text::bigint AS transaction_id, occurred_at, type, command_id, data::text, metadata::text, result::text
FROM (
    (SELECT * FROM commands
    WHERE transaction_id = :transaction_id::bigint::text::xid8
        AND id < coalesce(:before_id::bigint, 9223372036854775807)
    ORDER BY id + 0 DESC -- a cached plan would read all commands in the order of their ids
    LIMIT :page_limit::bigint)
    UNION ALL
    (SELECT * FROM commands
    WHERE :transaction_id IS NULL AND id < coalesce(:before_id, 9223372036854775807)
    ORDER BY id DESC
    LIMIT :page_limit)
) AS found
ORDER BY id DESC;

-- name: read_events :many
-- Matching events that the cursor has not seen; see functions/read_events.sql.
SELECT position, transaction_id, occurred_at, type, tags, data, correlation_id, causation_id, until, own
FROM @room.read_events(:query::text::jsonb, :after::text, :page_limit::bigint, :is_settled::boolean);

-- name: read_events_backwards :many
-- The latest matching events, newest first.
SELECT position, transaction_id, occurred_at, type, tags, data, correlation_id, causation_id, until::text, own
FROM @room.read_events_backwards(
    :query::text::jsonb, :after::text, :page_limit::bigint, :before_transaction_id::bigint::text::xid8, :before_position::bigint,
    :since_transaction_id::bigint::text::xid8);

-- name: read_tag :one
-- A page of the events with one tag, from the beginning: a faster read_events. The statement reads its own snapshot, so
-- nothing has to be excluded. The page is one JSON text, which is decoded several times faster than rows.
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
-- Register a follower, awake.
INSERT INTO event_followers (name) VALUES (:name) RETURNING id;

-- name: set_follower_asleep :exec
-- Record whether a follower waits for a NOTIFY; after falling asleep it must read once more before it waits. Falling
-- asleep deletes followers that have not been seen for a day: one that is alive registers again.
WITH forgotten AS (
    DELETE FROM event_followers WHERE :is_asleep::boolean AND id <> :id AND seen_at < now() - interval '1 day'
)
UPDATE event_followers SET is_asleep = :is_asleep, seen_at = now() WHERE id = :id;

-- name: take_turn :exec
-- Wait for other decisions by this query, up to a timeout. No append locks this key, and it is taken before all keys of
-- appends: waiting for it cannot deadlock.
SELECT set_config('lock_timeout', '1s', true),
    pg_advisory_xact_lock(hashtextextended('turn ' || :key, event_lock_seed()));
