-- Statements of backup, in alphabetical order.

-- name: adopt_restored_tokens :one
-- Let the collector of tokens continue at its position; see functions/adopt_restored_tokens.sql.
SELECT adopt_restored_tokens() AS waiting;

-- name: count_objects :one
-- The number of tables, views and sequences of a schema; NULL if it does not exist.
SELECT (SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = n.oid) AS objects
FROM (SELECT to_regnamespace(quote_ident(:name))::oid AS oid) AS n
WHERE n.oid IS NOT NULL
UNION ALL
SELECT NULL::bigint WHERE to_regnamespace(quote_ident(:name)) IS NULL;

-- name: describe_room :one
-- The server's version, the room's last migration, and the time.
SELECT current_setting('server_version') AS server, now() AS made_at,
    (SELECT max(name) FROM migrations WHERE name NOT LIKE '%/%') AS migration;

-- name: end_restore :exec
-- The restore is complete: remove the mark that keeps other processes out.
DROP TABLE restoring;

-- name: export_snapshot :one
-- Export this transaction's snapshot for pg_dump.
SELECT pg_export_snapshot() AS snapshot;

-- name: find_folder :one
-- The room's folder in a store of backups, the same as in the archive, so that rooms of one name stay apart.
SELECT archive_folder() AS folder;

-- name: find_restore :maybe
-- The mark of an unfinished restore: the checksum of its file.
SELECT obj_description(oid, 'pg_class') AS sha256
FROM pg_class
WHERE oid = to_regclass(quote_ident(:name) || '.restoring');

-- name: forget_functions :exec
-- Forget the loaded functions, so that they are created again: a dump has them under the old room name, without privileges.
DELETE FROM migrations WHERE name LIKE '%/%';

-- name: holds_data :one
-- True if a table of the room has rows besides those that migrations write. Works on any schema version.
SELECT EXISTS (
    SELECT FROM pg_class AS c
    WHERE c.relnamespace = to_regnamespace(quote_ident(:name)) AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0
        AND c.relname <> ALL(:written_by_migrations::text[])
) AS holds_data;

-- name: list_table_counts :many
-- Every table of the room with its number of rows and checksum.
SELECT c.relname::text AS name, f.rows, f.fingerprint
FROM pg_class AS c
CROSS JOIN LATERAL fingerprint_table(c.relname::text) AS f
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
ORDER BY c.relname;

-- name: try_backup_lock :one
-- Try to take the lock of scheduled backups, so that one process makes each; held until this session ends.
SELECT pg_try_advisory_lock(hashtextextended('backup of ' || current_schema(), 0)) AS is_locked;
