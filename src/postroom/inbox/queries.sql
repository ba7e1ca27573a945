-- The capture inbox.

-- name: clear_inbox :exec
-- Delete every captured message.
DELETE FROM inbox_messages;

-- name: find_inbox_message :maybe
-- One captured message with its bytes.
SELECT id, delivery_id, received_at, mail_from, recipients, subject, raw
FROM inbox_messages
WHERE id = :message_id;

-- name: insert_inbox_messages :many
-- Store captured messages. Recipients are flat and point to their message by ordinal, counted from one.
WITH envelope AS (
    SELECT ordinal, array_agg(address ORDER BY position) AS recipients
    FROM unnest(:recipient_ordinal::integer[], :recipient_address::text[]) WITH ORDINALITY AS r(ordinal, address, position)
    GROUP BY ordinal
)
INSERT INTO inbox_messages (delivery_id, mail_from, recipients, subject, raw)
SELECT m.delivery_id, m.mail_from, coalesce(envelope.recipients, '{}'), m.subject, m.raw
FROM unnest(:delivery_id::bigint[], :mail_from::text[], :subject::text[], :raw::bytea[])
    WITH ORDINALITY AS m(delivery_id, mail_from, subject, raw, ordinal)
LEFT JOIN envelope ON envelope.ordinal = m.ordinal
ORDER BY m.ordinal
RETURNING id;

-- name: list_inbox :many
-- Captured messages newest first, below a cursor, for one recipient or all.
SELECT id, delivery_id, received_at, mail_from, recipients, subject
FROM inbox_messages
WHERE (:recipient::text IS NULL OR recipients @> ARRAY[lower(:recipient::text)])
    AND (:before_id::bigint IS NULL OR id < :before_id)
ORDER BY id DESC
LIMIT :page_limit;

-- name: trim_inbox :exec
-- Delete all but the newest messages; rows locked by a concurrent trim are skipped.
DELETE FROM inbox_messages
WHERE id IN (
    SELECT id
    FROM inbox_messages
    WHERE id <= (SELECT id FROM inbox_messages ORDER BY id DESC OFFSET :keep LIMIT 1)
    FOR UPDATE SKIP LOCKED
);
