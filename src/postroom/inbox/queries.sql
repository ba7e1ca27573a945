-- The capture inbox. `sees_codes` is false for readers from whom the sign-in codes of operators are hidden.

-- name: clear_inbox :exec
-- Delete every captured message.
DELETE FROM inbox_messages
WHERE (:sees_codes::boolean OR NOT is_sign_in);

-- name: count_inbox :one
-- Count all messages and the unread ones.
SELECT count(*) AS total, count(*) FILTER (WHERE read_at IS NULL) AS unread
FROM inbox_messages
WHERE (:sees_codes::boolean OR NOT is_sign_in);

-- name: delete_inbox_message :exec
-- Delete one captured message.
DELETE FROM inbox_messages
WHERE id = :message_id AND (:sees_codes::boolean OR NOT is_sign_in);

-- name: find_captured :maybe
-- The newest captured message of a delivery; the index finds those to one of its recipients.
SELECT id FROM inbox_messages
WHERE recipients @> ARRAY[lower(:recipient::text)] AND delivery_id = :delivery_id
    AND (:sees_codes::boolean OR NOT is_sign_in)
ORDER BY id DESC
LIMIT 1;

-- name: find_inbox_message :maybe
-- One captured message with its bytes.
SELECT m.id, m.delivery_id, m.received_at, m.mail_from, m.recipients, m.subject, m.author, left(m.content, 400) AS snippet,
    octet_length(m.raw) AS size, m.attachment_count, m.read_at IS NOT NULL AS is_read, m.is_sign_in,
    d.tags::text AS tags, m.raw
FROM inbox_messages AS m
LEFT JOIN deliveries AS d ON d.id = m.delivery_id
WHERE m.id = :message_id AND (:sees_codes::boolean OR NOT m.is_sign_in);

-- name: find_place :one
-- The messages before and after one, in the order of their arrival.
SELECT (SELECT min(id) FROM inbox_messages WHERE id > :message_id AND (:sees_codes::boolean OR NOT is_sign_in)) AS newer,
    (SELECT max(id) FROM inbox_messages WHERE id < :message_id AND (:sees_codes::boolean OR NOT is_sign_in)) AS older;

-- name: insert_inbox_messages :many
-- Store captured messages. Recipients are flat and point to their message by ordinal, counted from one. Mail with the
-- source of sign-in codes stays marked when its delivery is deleted. A scalar subquery, because EXISTS may be planned as
-- a hash of all deliveries with that source.
WITH envelope AS (
    SELECT ordinal, array_agg(address ORDER BY position) AS recipients
    FROM unnest(:recipient_ordinal::integer[], :recipient_address::text[]) WITH ORDINALITY AS r(ordinal, address, position)
    GROUP BY ordinal
)
INSERT INTO inbox_messages (delivery_id, mail_from, recipients, subject, author, content, attachment_count, is_sign_in, raw)
SELECT m.delivery_id, m.mail_from, coalesce(envelope.recipients, '{}'), m.subject, m.author, m.content,
    m.attachment_count,
    coalesce((SELECT d.source = :sign_in_source::text FROM deliveries AS d WHERE d.id = m.delivery_id), false), m.raw
FROM unnest(:delivery_id::bigint[], :mail_from::text[], :subject::text[], :author::text[], :content::text[],
        :attachment_count::integer[], :raw::bytea[])
    WITH ORDINALITY AS m(delivery_id, mail_from, subject, author, content, attachment_count, raw, ordinal)
LEFT JOIN envelope ON envelope.ordinal = m.ordinal
ORDER BY m.ordinal
RETURNING id;

-- name: insert_inbox_release :exec
-- Store that a delivery is a released message.
INSERT INTO inbox_releases (delivery_id, message_id)
VALUES (:delivery_id, :message_id);

-- name: is_released :one
-- True for the delivery of a released message.
SELECT EXISTS (SELECT FROM inbox_releases WHERE delivery_id = :delivery_id) AS is_released;

-- name: list_inbox :many
-- Captured messages newest first, below a cursor, that match every term of a search.
SELECT m.id, m.delivery_id, m.received_at, m.mail_from, m.recipients, m.subject, m.author, left(m.content, 400) AS snippet,
    octet_length(m.raw) AS size, m.attachment_count, m.read_at IS NOT NULL AS is_read, m.is_sign_in, d.tags::text AS tags
FROM inbox_messages AS m
LEFT JOIN deliveries AS d ON d.id = m.delivery_id
WHERE (:sees_codes::boolean OR NOT m.is_sign_in)
    AND (:recipient::text IS NULL OR m.recipients @> ARRAY[lower(:recipient::text)])
    AND (:before_id::bigint IS NULL OR m.id < :before_id)
    AND (:after_id::bigint IS NULL OR m.id > :after_id)
    AND (:is_read::boolean IS NULL OR (m.read_at IS NOT NULL) = :is_read)
    AND (:has_attachment::boolean IS NULL OR (m.attachment_count > 0) = :has_attachment)
    AND NOT EXISTS (
        SELECT FROM unnest(:senders::text[]) AS term
        WHERE strpos(lower(m.author || ' ' || m.mail_from), lower(term)) = 0
    )
    AND NOT EXISTS (
        SELECT FROM unnest(:receivers::text[]) AS term
        WHERE strpos(array_to_string(m.recipients, ' '), lower(term)) = 0
    )
    AND NOT EXISTS (
        SELECT FROM unnest(:subjects::text[]) AS term WHERE strpos(lower(m.subject), lower(term)) = 0
    )
    AND NOT EXISTS (
        SELECT FROM unnest(:words::text[]) AS term
        WHERE strpos(lower(concat_ws(E'\n', m.subject, m.author, m.content)), lower(term)) = 0
            AND strpos(array_to_string(m.recipients, ' '), lower(term)) = 0
    )
    AND NOT EXISTS (
        SELECT FROM unnest(:tags::text[]) AS term
        WHERE NOT EXISTS (
            SELECT FROM jsonb_each_text(d.tags) AS tag(key, value)
            WHERE lower(term) IN (lower(tag.key), lower(tag.value), lower(tag.key || '=' || tag.value))
        )
    )
ORDER BY m.id DESC
LIMIT :page_limit;

-- name: mark_inbox :exec
-- Mark one message, or all that are not so yet, as read or unread.
UPDATE inbox_messages
SET read_at = CASE WHEN :is_read::boolean THEN now() END
WHERE (id = :message_id::bigint OR :message_id::bigint IS NULL AND (read_at IS NOT NULL) <> :is_read)
    AND (:sees_codes::boolean OR NOT is_sign_in);

-- name: trim_inbox :exec
-- Delete all but the newest messages; rows locked by a concurrent trim are skipped.
DELETE FROM inbox_messages
WHERE id = ANY (ARRAY(
    SELECT id
    FROM inbox_messages
    WHERE id <= (SELECT id FROM inbox_messages ORDER BY id DESC OFFSET :keep LIMIT 1)
    FOR UPDATE SKIP LOCKED
));
