-- Statements about the room: its schema and the applied files.

-- name: close_functions :exec
-- Revoke functions that run as the owner from PUBLIC; see functions/close_functions.sql.
SELECT close_functions();

-- name: create_migrations_table :exec
-- The table of applied files; the only table that no migration creates.
CREATE TABLE IF NOT EXISTS migrations (
    name       text        PRIMARY KEY,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    release    integer     NOT NULL
);

-- name: describe_copy :one
-- The identity of a replica, and the position of the log that it has replayed.
SELECT system_identifier AS system, current_database()::text AS database,
    (coalesce(pg_last_wal_replay_lsn(), '0/0') - '0/0')::bigint AS position
FROM pg_control_system();

-- name: describe_room :exec
-- Set the comments of tables, views, columns and functions; see functions/describe_room.sql.
SELECT describe_room(:relations::text::jsonb, :columns::text::jsonb, :functions::text::jsonb);

-- name: describe_session :one
-- The role, the search path's first schema and the time zone of this session.
SELECT current_user::text AS role, current_schema()::text AS schema, current_setting('timezone') AS timezone;

-- name: describe_source :one
-- The identity of the primary, and the position of its log: later than every acknowledged commit, flushed or not.
SELECT system_identifier AS system, current_database()::text AS database,
    (pg_current_wal_insert_lsn() - '0/0')::bigint AS position
FROM pg_control_system();

-- name: ensure_partitions :one
-- Create a table's partitions for this month and the next ones.
SELECT ensure_partitions(:table_name, :months, coalesce(:now::timestamptz, now())) AS made;

-- name: enter_room :exec
-- Let this session find the tables of another room.
SELECT set_config('search_path', :search_path, false);

-- name: find_index :maybe
-- An index of the room, and whether it is valid.
SELECT indisvalid AS is_valid
FROM pg_index
WHERE indexrelid = to_regclass(:name);

-- name: find_migrations_table :maybe
-- The table of applied files, if the room has one.
SELECT 1
FROM pg_catalog.pg_tables
WHERE schemaname = :room AND tablename = 'migrations';

-- name: find_processes_table :maybe
-- The table of running processes, if the room has one.
SELECT 1
FROM pg_catalog.pg_tables
WHERE schemaname = :room AND tablename = 'processes';

-- name: find_restore :maybe
-- The mark of an unfinished restore.
SELECT 1
FROM pg_catalog.pg_tables
WHERE schemaname = :room AND tablename = 'restoring';

-- name: find_schema :maybe
-- The room's schema, if it exists.
SELECT 1
FROM pg_catalog.pg_namespace
WHERE nspname = :room;

-- name: forget_process :exec
-- Remove a process that ends.
DELETE FROM processes WHERE id = :process_id;

-- name: identify_server :one
-- The start of this server, which no other server shares.
SELECT pg_postmaster_start_time() AS started_at;

-- name: is_in_recovery :one
-- True for a standby, and for a primary that has not been promoted yet: it can be read, and changes nothing.
SELECT pg_is_in_recovery() AS is_in_recovery;

-- name: list_applied_files :many
-- Every migration and function file applied so far, with the checksum of its text.
SELECT name, checksum, release
FROM migrations;

-- name: list_loop_failures :many
-- Background loops that failed recently, the latest first.
SELECT loop, host, pid, error, failures, clock_timestamp() - failed_at AS ago
FROM loop_failures
WHERE failed_at > clock_timestamp() - :since::interval
ORDER BY failed_at DESC
LIMIT 5;

-- name: list_old_processes :many
-- Running processes of releases before this one.
SELECT pid, host, command
FROM processes
WHERE release < :oldest AND seen_at > clock_timestamp() - :silence::interval
ORDER BY host, pid
LIMIT 10;

-- name: list_rooms :many
-- Every schema of the database that has a room, or a restore that began, with the marks of its state. Reads only the
-- catalog, so that a thousand rooms cost one statement and no privilege.
SELECT n.nspname::text AS name, has_schema_privilege(n.oid, 'USAGE') AS is_permitted,
    bool_or(c.relname = 'restoring') AS is_restoring,
    max(obj_description(c.oid, 'pg_class')) FILTER (WHERE c.relname = 'moving') AS moving
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname IN ('migrations', 'deliveries', 'due_deliveries', 'restoring', 'moving') AND c.relkind IN ('r', 'p')
GROUP BY n.oid, n.nspname
HAVING bool_or(c.relname = 'restoring')
    OR count(*) FILTER (WHERE c.relname IN ('migrations', 'deliveries', 'due_deliveries')) = 3
ORDER BY n.nspname;

-- name: lock_migrations :exec
-- Wait for another process that is migrating this room; the lock ends with the session.
SELECT pg_advisory_lock(hashtextextended('postroom:migrate:' || :room, 0));

-- name: lock_starts :exec
-- Let no process register itself until this transaction ends.
LOCK TABLE processes IN SHARE ROW EXCLUSIVE MODE;

-- name: ping :one
-- Check that the server responds on this connection.
SELECT 1;

-- name: put_temporary_tables_last :exec
-- Set the search path of functions that run as the owner: a caller's temporary table must not shadow one of the room.
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', false);

-- name: record_applied_files :exec
-- Record that files were applied, with their checksums.
INSERT INTO migrations (name, checksum, release)
SELECT name, checksum, :release::integer
FROM unnest(:names::text[], :checksums::text[]) AS file (name, checksum)
ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, release = excluded.release, applied_at = now();

-- name: record_loop_failure :exec
-- Count a failure of a background loop on this host.
INSERT INTO loop_failures (loop, host, pid, error)
VALUES (:loop, :host, :pid, :error)
ON CONFLICT (loop, host) DO UPDATE
SET pid = excluded.pid, error = excluded.error, failed_at = now(), failures = loop_failures.failures + 1;

-- name: register_process :one
-- Register a process, after the second phase of another process's migration; see functions/register_process.sql.
SELECT process_id, applied
FROM register_process(:pid::integer, :release::integer, :host::text, :command::text);

-- name: renew_process :exec
-- Record that a process runs, and a proxy that its settings do not list.
UPDATE processes SET seen_at = clock_timestamp(), unlisted_proxy = :unlisted_proxy::text WHERE id = :process_id;
