-- Mails, as clients of Resend list them.

-- name: find_send_time :maybe
-- The time that a mail was given, by its idempotency key.
SELECT dated_at
FROM deliveries
WHERE source = :source AND idempotency_key = :idempotency_key;

-- name: list_emails :many
-- Mails newest first: older than one id, or the nearest that are newer than another.
WITH page AS (
    (
        SELECT id
        FROM deliveries
        WHERE channel = 'email' AND :newer_than::bigint IS NULL
            AND (:older_than::bigint IS NULL OR id < :older_than)
        ORDER BY id DESC
        LIMIT :page_limit
    )
    UNION ALL
    (
        SELECT id
        FROM deliveries
        WHERE channel = 'email' AND id > :newer_than::bigint
        ORDER BY id
        LIMIT :page_limit
    )
)
SELECT d.id, d.state::text, d.lane::text, d.attempt_count, d.next_attempt_at, d.created_at,
    p.from_email, p.from_name, p.subject, r.kinds, r.emails, r.outcomes
FROM page
JOIN deliveries AS d ON d.id = page.id
LEFT JOIN delivery_payloads AS p ON p.delivery_id = d.id
CROSS JOIN LATERAL (
    SELECT array_agg(kind::text ORDER BY kind, position) AS kinds,
        array_agg(email ORDER BY kind, position) AS emails,
        array_agg(outcome::text ORDER BY kind, position) AS outcomes
    FROM delivery_recipients
    WHERE delivery_id = d.id
) AS r
ORDER BY d.id DESC;
