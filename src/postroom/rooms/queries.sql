-- Statements of rooms, in alphabetical order.

-- name: begin_move :exec
-- Mark the room as moving and stop claims; see functions/begin_move.sql.
SELECT begin_move(:mark);

-- name: close_room :exec
-- Refuse all writes; see functions/close_room.sql.
SELECT close_room();

-- name: count_claims :one
-- The claims of workers, whose attempts may be running.
SELECT count(*) AS claims
FROM claims;

-- name: count_waiting :one
-- The deliveries of the room that are not ended: those that wait, and those in a worker's hands.
SELECT (SELECT count(*) FROM due_deliveries)
    + (SELECT count(*) FROM claims AS c JOIN deliveries AS d ON d.id = ANY(c.delivery_ids) AND d.claim_id = c.id)
    AS waiting;

-- name: count_writes :many
-- The rows that were ever written to the tables in which work is found, by room: those that the functions of
-- next_work_at read. Reads the server's counters, and no table of a room. Empty if the server does not count.
SELECT n.nspname::text AS room,
    sum(pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid))::bigint
        AS writes
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE current_setting('track_counts')::boolean AND c.relkind = 'r'
    AND (
        c.relname LIKE 'delivery\_steps\_%'
        OR c.relname IN (
            'campaign_zones', 'campaigns', 'claims', 'due_deliveries', 'events', 'jobs', 'mass_actions',
            'outbox_topic_progress', 'outbox_topics', 'scheduled_events', 'stat_deltas', 'stats_cursor', 'tokens', 'users'
        )
    )
GROUP BY n.nspname;

-- name: find_work :one
-- Which loops of an awake room have work soon, see functions/due_work.sql, and whether a mail is on its way.
SELECT due_work(:collects_tokens::boolean, :publishers::text[], :within::interval) AS due,
    EXISTS (SELECT FROM claims) AS has_claims;

-- name: forget_sleeper :maybe
-- Remove the registration of this process in a room that no longer sleeps; see functions/forget_sleeper.sql.
SELECT @room.forget_sleeper(:pid::integer, :host::text);

-- name: inspect_room :one
-- The last migration of the room and its size with indexes.
SELECT (SELECT max(name) FROM migrations WHERE name NOT LIKE '%/%') AS version,
    (
        SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
        FROM pg_class AS c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
    ) AS bytes;

-- name: limit_lock_wait :exec
-- Give up a lock that another transaction holds for longer, so that writers behind this one do not wait long either.
SELECT set_config('lock_timeout', :milliseconds::bigint::text, true);

-- name: list_roles :many
-- The other roles that may use the room.
SELECT DISTINCT r.rolname::text AS role
FROM pg_namespace AS n
CROSS JOIN LATERAL aclexplode(n.nspacl) AS granted
JOIN pg_roles AS r ON r.oid = granted.grantee
WHERE n.nspname = current_schema() AND granted.privilege_type = 'USAGE' AND r.oid <> n.nspowner
ORDER BY role;

-- name: mark_move :exec
-- Record how far the move is; see functions/mark_move.sql.
SELECT mark_move(:mark);

-- name: release_move_lock :exec
-- Release the lock of moves of this room before the session ends.
SELECT pg_advisory_unlock(hashtextextended('postroom:move:' || current_schema(), 0));

-- name: renew_sleeper :maybe
-- Keep this process registered in a sleeping room; see functions/register_sleeper.sql.
SELECT @room.register_sleeper(:pid::integer, :host::text) AS is_new;

-- name: reopen_room :exec
-- Permit writes and claims again, and remove the mark; see functions/reopen_room.sql.
SELECT reopen_room();

-- name: try_move_lock :one
-- Try to take the lock of moves of this room; held until the session ends.
SELECT pg_try_advisory_lock(hashtextextended('postroom:move:' || current_schema(), 0)) AS is_locked;

-- name: wake_room :one
-- Register the process and its worker in a room that wakes; see functions/wake_room.sql.
SELECT worker_id, process_id, applied
FROM wake_room(:pid::integer, :host::text, :release::integer);

-- name: watch_room :many
-- Keep this process registered in a sleeping room, and find when it has work; see functions/watch_room.sql.
SELECT room, is_new, wait_s
FROM @room.watch_room(:pid::integer, :host::text, :collects_tokens::boolean, :publishers::text[])
