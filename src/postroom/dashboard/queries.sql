-- Statements of the dashboard: reads beyond the services of others, and the sessions that were signed out.

-- name: count_ended :many
-- The deliveries that ended since a moment, by hour and state. Only the newest steps are read, up to a bound, so that a page
-- stays cheap.
SELECT date_trunc('hour', at, 'UTC') AS hour, coalesce(nullif(step::text, 'dead_lettered'), 'dead_letter') AS state,
    count(*) AS ended
FROM (
    SELECT at, step
    FROM delivery_steps
    ORDER BY transaction_id DESC, position DESC
    LIMIT :bound
) AS newest
WHERE at >= :since::timestamptz AND step NOT IN ('accepted', 'deferred', 'redriven')
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: count_sending :many
-- How many deliveries of each lane are with a worker now, counted up to a bound.
SELECT lane::text, count(*) AS sending
FROM (
    SELECT d.lane
    FROM claims AS c
    JOIN deliveries AS d ON d.id = ANY(c.delivery_ids) AND d.claim_id = c.id
    LIMIT :bound
) AS held
GROUP BY lane
ORDER BY lane;

-- name: end_session :exec
-- Refuse a session from now on, in every process. Sessions that have expired need no row any longer.
WITH expired AS (
    DELETE FROM ended_sessions WHERE expires_at < now()
)
INSERT INTO ended_sessions (nonce, expires_at)
VALUES (:nonce, :expires_at)
ON CONFLICT DO NOTHING;

-- name: find_session_key :maybe
-- The key a session was opened with, unless the key was revoked or the session was signed out.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at
FROM api_keys
WHERE id = :key_id AND revoked_at IS NULL
    AND NOT EXISTS (SELECT FROM ended_sessions WHERE nonce = :nonce);

-- name: list_workers :many
-- Who works here, the last seen first.
SELECT id, pid, host, started_at, seen_at, asleep::text[]
FROM workers
ORDER BY seen_at DESC, id
LIMIT :page_limit;
