-- Statements of erasure, in alphabetical order.

-- name: add_count :exec
-- Add changed rows to the counts.
UPDATE erasures
SET counts = counts || jsonb_build_object(:name::text, coalesce((counts ->> :name)::bigint, 0) + :amount::bigint)
WHERE id = :id;

-- name: begin_erasure :one
-- Record an erasure, or restart the unfinished one of this address.
INSERT INTO erasures AS e (requested_by, pseudonym, address)
VALUES (:actor, erased_address(:address), :address)
ON CONFLICT (pseudonym) WHERE state <> 'done' DO UPDATE SET state = 'database', last_file_id = 0
RETURNING id, state::text, address, pseudonym, delivery_ids, last_file_id, xmax = 0 AS is_new;

-- name: erase_accounts :one
-- Delete the limit counters of the address; see accounts/functions/erase_accounts.sql.
SELECT erase_accounts(:address) AS touched;

-- name: erase_attempts :one
-- Erase the person from one table of the ledger; see functions/erase_attempts.sql.
SELECT erase_attempts(:table_name, :address, :pseudonym) AS delivery_ids;

-- name: erase_audit :one
-- Erase the person from texts of the audit log.
SELECT erase_audit(:address, :pseudonym) AS touched;

-- name: erase_delivery_batch :one
-- One bounded step through deliveries to other recipients; see functions/erase_delivery_batch.sql.
SELECT last_id, touched FROM erase_delivery_batch(:address, :pseudonym, :after_id, :batch_limit);

-- name: erase_indexed :one
-- Call each capability's function for the rows that an index finds; each returns the rows it changed. Campaigns first: while
-- their rows are locked, no feeder makes a delivery for the person that the search for deliveries would not find.
SELECT erase_campaigns(:address, :pseudonym) AS campaign_recipients,
    erase_deliveries(:address, :pseudonym) AS delivery_ids,
    erase_feedback(:address, :pseudonym) AS suppressions,
    erase_inbox(:address) AS inbox_messages;

-- name: erase_pages :one
-- One bounded step of a search; see functions/erase_pages.sql.
SELECT erase_pages(
    :table_name, :columns::text[], :keys::text[], :address, :pseudonym, :from_page, :to_page
) AS touched;

-- name: erase_rows :one
-- Erase rows by equality; see functions/erase_rows.sql.
SELECT erase_rows(:table_name, :column_name, :how, :address, :pseudonym) AS touched;

-- name: find_erasure :maybe
-- One erasure by its id.
SELECT id, state::text, requested_at, finished_at, requested_by, counts::text, waits_for FROM erasures WHERE id = :id;

-- name: find_work :maybe
-- The values that a running erasure uses.
SELECT id, state::text, address, pseudonym, delivery_ids, last_file_id FROM erasures WHERE id = :id AND state <> 'done';

-- name: list_erasures :many
-- Erasures, newest first, below a cursor.
SELECT id, state::text, requested_at, finished_at, requested_by, counts::text, waits_for
FROM erasures
WHERE :before_id::bigint IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :page_limit;

-- name: list_running :many
-- Unfinished erasures.
SELECT id FROM erasures WHERE state <> 'done' ORDER BY id;

-- name: list_searched_tables :many
-- The tables that hold a table's rows: itself or its partitions, and months that are being archived or restored, also
-- those of an unfinished restore without a record.
SELECT c.relname::text AS name
FROM pg_inherits AS i -- pg_partition_tree() would lock partitions before their table, and deadlock with ensure_partitions()
JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass(quote_ident(:table_name))
UNION
SELECT c.relname::text FROM pg_class AS c WHERE c.oid = to_regclass(quote_ident(:table_name)) AND c.relkind = 'r'
UNION
SELECT source_name
FROM archived_partitions
WHERE table_name = :table_name AND NOT is_attached AND state NOT IN ('archived', 'expired')
UNION
SELECT c.relname::text
FROM pg_class AS c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
    AND c.relname ~ ('^' || :table_name || '_restored_\d{4}_\d\d$');

-- name: lock_work :maybe
-- Lock the erasure if its database part is not done; a concurrent run or request of the same address waits.
SELECT id FROM erasures WHERE id = :id AND state = 'database' FOR UPDATE;

-- name: make_erasure_key :exec
-- Create the room's key if it does not exist.
SELECT make_erasure_key();

-- name: mark_database_erased :exec
-- The database part is done; the archive is left.
UPDATE erasures SET state = 'archive' WHERE id = :id AND state = 'database';

-- name: mark_done :exec
-- The erasure is done, and its row loses the address; no effect if the erasure was requested again meanwhile.
UPDATE erasures
SET state = 'done', finished_at = now(), address = NULL, delivery_ids = '{}', waits_for = '{}'
WHERE id = :id AND state = 'archive' AND last_file_id = :last_file_id;

-- name: mark_file_erased :exec
-- Files up to this piece are rewritten, counted from where this run began; no effect if it was requested again meanwhile.
UPDATE erasures
SET last_file_id = :last_file_id
WHERE id = :id AND state = 'archive' AND last_file_id = :before_file_id;

-- name: mark_waiting :exec
-- Record the files and stores that failed, with reasons.
UPDATE erasures SET waits_for = :waits_for::text[] WHERE id = :id AND state <> 'done';

-- name: remember_deliveries :exec
-- Record the ids of the person's deliveries, for tables that refer to nothing else.
UPDATE erasures
SET delivery_ids = ARRAY(SELECT DISTINCT unnest(delivery_ids || :delivery_ids::bigint[]))
WHERE id = :id;
