-- Everything backup asks of the database, in alphabetical order.

-- name: adopt_restored_tokens :one
-- Let the collector go on where it was; see functions/adopt_restored_tokens.sql.
SELECT adopt_restored_tokens() AS waiting;

-- name: count_objects :one
-- How many tables, views and sequences a schema has; NULL when there is no such schema.
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
-- The room is whole, and open to everybody.
DROP TABLE restoring;

-- name: export_snapshot :one
-- Let pg_dump see exactly what this transaction sees.
SELECT pg_export_snapshot() AS snapshot;

-- name: find_folder :one
-- The folder of this room within a store of backups; that of the archive, so that rooms of one name stay apart.
SELECT archive_folder() AS folder;

-- name: find_restore :maybe
-- The mark of a restore that is not finished, and the checksum of the file it is from.
SELECT obj_description(oid, 'pg_class') AS sha256
FROM pg_class
WHERE oid = to_regclass(quote_ident(:name) || '.restoring');

-- name: forget_functions :exec
-- After a restore the functions are made anew: under another name they carry the old one, and none has its privileges.
DELETE FROM migrations WHERE name LIKE '%/%';

-- name: holds_data :one
-- Whether any table of the room holds rows beside those that the migrations themselves write. Works on any schema version.
SELECT EXISTS (
    SELECT FROM pg_class AS c
    WHERE c.relnamespace = to_regnamespace(quote_ident(:name)) AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0
        AND c.relname <> ALL(:written_by_migrations::text[])
) AS holds_data;

-- name: list_table_counts :many
-- Every table of the room with its rows and fingerprint.
SELECT c.relname::text AS name, f.rows, f.fingerprint
FROM pg_class AS c
CROSS JOIN LATERAL fingerprint_table(c.relname::text) AS f
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
ORDER BY c.relname;

-- name: try_backup_lock :one
-- The right to make the scheduled backup, if no other process has it; held until this session ends.
SELECT pg_try_advisory_lock(hashtextextended('backup of ' || current_schema(), 0)) AS is_locked;
