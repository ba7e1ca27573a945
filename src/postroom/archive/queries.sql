-- Statements of archive, in alphabetical order. Statements that depend on the time take :now; NULL uses the database's
-- clock.

-- name: adopt_pieces :exec
-- Take over the files of the original room.
UPDATE archived_partitions
SET room_id = (SELECT id FROM archive_room)
WHERE state = 'archived' AND room_id IS DISTINCT FROM (SELECT id FROM archive_room);

-- name: attach_restored_table :exec
-- Attach a restored month to its table.
SELECT attach_restored_table(:table_name, :name, :from_time);

-- name: collect_late_rows :one
-- Move a few late rows out of the default partition; see functions/collect_late_rows.sql.
SELECT collect_late_rows(:id, :batch_limit) AS moved;

-- name: compose_export :one
-- The SELECT that reads some pages of a table for the archive; see functions/archive_select.sql.
SELECT archive_select(:source_name, :from_page, :to_page) AS statement;

-- name: count_pages :one
-- The number of pages of a table; NULL when it does not exist or is being dropped.
SELECT coalesce(pg_relation_size(to_regclass(quote_ident(:source_name))), 0) / current_setting('block_size')::bigint AS pages;

-- name: count_rows :one
-- The number of rows of a table.
SELECT count_table_rows(:name) AS rows;

-- name: detach_partition :exec
-- Take a verified partition out of its table; see functions/detach_archived_partition.sql.
SELECT detach_archived_partition(:id);

-- name: drop_restored_table :one
-- Drop a restored month.
SELECT drop_restored_table(:name) AS pieces;

-- name: drop_source :exec
-- Drop the table of a piece that is in the archive; see functions/drop_archived_source.sql.
SELECT drop_archived_source(:id, coalesce(:now::timestamptz, now()));

-- name: find_folder :maybe
-- The folder of this room in a store; no row while it has the id of the room it is a copy of.
SELECT archive_folder() AS name FROM archive_room WHERE place = archive_place();

-- name: find_partition_column :one
-- The time column by which a table is partitioned; NULL for a table without partitions.
SELECT partition_column(:table_name) AS name;

-- name: find_segment :maybe
-- One piece by its id.
SELECT id, state::text, is_attached, part, rows, bytes, from_time, to_time, min_time, max_time, begun_at, exported_at,
    verified_at, archived_at, expired_at, restored_at, table_name, source_name, path, store_url, restored_name,
    columns::text, file_sha256, content_sha256,
    room_id IS DISTINCT FROM (SELECT id FROM archive_room WHERE place = archive_place()) AS is_foreign
FROM archived_partitions
WHERE id = :id;

-- name: forget_spare :exec
-- The spare file of a piece was removed.
UPDATE archived_partitions SET spare_path = NULL WHERE id = :id;

-- name: keep :exec
-- Keep the identity in the archive after a move; see functions/keep_archive.sql.
SELECT keep_archive();

-- name: list_columns :many
-- The columns of a table and their archive types, in the table's order.
SELECT attname::text AS name, archive_type(atttypid) AS type
FROM pg_attribute
WHERE attrelid = to_regclass(quote_ident(:source_name)) AND attnum > 0 AND NOT attisdropped
ORDER BY attnum;

-- name: list_expiring :many
-- Pieces of a table whose retention in the archive has expired, oldest first, without those of another room.
SELECT id
FROM archived_partitions
WHERE table_name = :table_name AND state = 'archived' AND restored_at IS NULL
    AND room_id = (SELECT id FROM archive_room)
    AND to_time <= coalesce(:now::timestamptz, now()) - :retention::interval
ORDER BY to_time, id;

-- name: list_segments :many
-- Pieces of one table or of all, oldest month first.
SELECT id, state::text, is_attached, part, rows, bytes, from_time, to_time, min_time, max_time, begun_at, exported_at,
    verified_at, archived_at, expired_at, restored_at, table_name, source_name, path, store_url, restored_name,
    columns::text, file_sha256, content_sha256,
    room_id IS DISTINCT FROM (SELECT id FROM archive_room WHERE place = archive_place()) AS is_foreign
FROM archived_partitions
WHERE (:table_name::text IS NULL OR table_name = :table_name)
    AND (:after_id::bigint IS NULL OR id > :after_id)
ORDER BY id
LIMIT :page_limit;

-- name: list_spares :many
-- Pieces with a second file beside the recorded one: an unfinished new file, or an old file that was not removed.
SELECT id, spare_path FROM archived_partitions WHERE spare_path IS NOT NULL ORDER BY id;

-- name: list_unfinished :many
-- Unfinished pieces, oldest first.
SELECT id
FROM archived_partitions
WHERE state NOT IN ('archived', 'expired')
ORDER BY id;

-- name: list_unfinished_restores :many
-- Tables of unfinished restores: detached, and without a record.
SELECT c.relname::text AS name
FROM pg_class AS c
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND NOT c.relispartition
    AND substring(c.relname FROM '^(.+)_restored_\d{4}_\d{2}$') = ANY(:tables::text[])
    AND c.relname NOT IN (SELECT restored_name FROM archived_partitions WHERE restored_name IS NOT NULL)
ORDER BY c.relname;

-- name: make_restored_table :exec
-- Create an empty table for a month to restore.
SELECT make_restored_table(:table_name, :name);

-- name: mark_collected :exec
-- All late rows are in the piece's own table.
UPDATE archived_partitions SET state = 'exporting' WHERE id = :id AND state = 'collecting';

-- name: mark_expired :exec
-- The file was deleted.
UPDATE archived_partitions
SET state = 'expired', expired_at = coalesce(:now::timestamptz, now())
WHERE id = :id AND state = 'archived';

-- name: mark_exported :exec
-- The file was written, with these counts and checksums.
UPDATE archived_partitions
SET state = 'exported', exported_at = coalesce(:now::timestamptz, now()), rows = :rows, bytes = :bytes, min_time = :min_time,
    max_time = :max_time, columns = :columns::text::jsonb, file_sha256 = :file_checksum, content_sha256 = :content_checksum
WHERE id = :id AND state = 'exporting';

-- name: mark_restored :exec
-- The rows of a piece are in the database again.
UPDATE archived_partitions
SET restored_at = coalesce(:now::timestamptz, now()), restored_name = :name
WHERE id = :id AND state = 'archived' AND restored_at IS NULL;

-- name: mark_stale :exec
-- The table has changed since the export, or the file is damaged: export it again.
UPDATE archived_partitions
SET state = 'exporting'
WHERE id = :id AND state IN ('exported', 'verified', 'detached');

-- name: mark_verified :exec
-- The file was read back and matches the table.
UPDATE archived_partitions
SET state = 'verified', verified_at = coalesce(:now::timestamptz, now())
WHERE id = :id AND state = 'exported';

-- name: open_late_segment :one
-- Begin a piece for late rows in the default partition; see functions/open_late_segment.sql.
SELECT open_late_segment(:table_name, coalesce(:now::timestamptz, now()) - :retention::interval) AS id;

-- name: open_segments :many
-- Begin a piece for every partition whose whole month is older than the table's retention, without restored months, and
-- without months that a follower still reads.
INSERT INTO archived_partitions (state, is_attached, part, from_time, to_time, room_id, table_name, source_name, path)
SELECT 'exporting', true, numbered.part, from_time, to_time, (SELECT id FROM archive_room), :table_name, name,
    archive_path(:table_name, from_time, numbered.part)
FROM (
    SELECT c.relname::text AS name,
        substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \('([^']+)'\)$$)::timestamptz AS from_time,
        substring(pg_get_expr(c.relpartbound, c.oid) FROM $$TO \('([^']+)'\)$$)::timestamptz AS to_time
    FROM pg_inherits AS i
    JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass(quote_ident(:table_name))
) AS partition
CROSS JOIN LATERAL (
    SELECT (1 + coalesce(max(part), 0))::smallint AS part
    FROM archived_partitions
    WHERE table_name = :table_name AND archived_partitions.from_time = partition.from_time
) AS numbered
WHERE to_time <= coalesce(:now::timestamptz, now()) - :retention::interval
    AND is_month_read(:table_name, from_time, to_time)
    AND name NOT IN (SELECT source_name FROM archived_partitions WHERE state NOT IN ('archived', 'expired'))
    AND name NOT IN (SELECT restored_name FROM archived_partitions WHERE restored_name IS NOT NULL)
ORDER BY from_time
RETURNING id;

-- name: reserve_path :one
-- Record the path of a piece's new file before it is written.
UPDATE archived_partitions
SET spare_path = archive_path(table_name, from_time, part)
WHERE id = :id AND state = 'archived'
RETURNING spare_path;

-- name: settle :exec
-- Detect a copied or restored room; see functions/settle_archive.sql.
SELECT settle_archive();

-- name: switch_file :exec
-- Make the new file the piece's own. The old file becomes the spare to remove, unless another room wrote it.
UPDATE archived_partitions
SET path = spare_path, spare_path = CASE WHEN :is_foreign THEN NULL ELSE path END, room_id = (SELECT id FROM archive_room),
    rows = :rows, bytes = :bytes, file_sha256 = :file_checksum, content_sha256 = :content_checksum,
    min_time = :min_time, max_time = :max_time
WHERE id = :id AND state = 'archived' AND spare_path IS NOT NULL;

-- name: try_archive_lock :one
-- Try to take the archive's lock: two processes would write and drop the same piece. Held until this session ends.
SELECT pg_try_advisory_lock(hashtextextended('archive of ' || current_schema(), 0)) AS is_locked;

-- name: use_store :exec
-- Record the store and a new path before the file is written, so that the file of a killed process can be found.
UPDATE archived_partitions
SET store_url = :store_url, path = archive_path(table_name, from_time, part)
WHERE id = :id AND state = 'exporting';
