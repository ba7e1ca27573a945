-- Statements of the dashboard: reads beyond the services of others, and the sessions that were signed out.

-- name: count_sending :many
-- How many deliveries of each lane workers have claimed and not finished.
SELECT lane::text, sum(cardinality(delivery_ids))::bigint AS sending
FROM claims
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

-- name: find_session_operator :maybe
-- The operator who opened a session, unless the operator was disabled or the session was signed out.
SELECT id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since
FROM operators
WHERE id = :operator_id AND disabled_at IS NULL
    AND NOT EXISTS (SELECT FROM ended_sessions WHERE nonce = :nonce);

-- name: list_workers :many
-- Who works here, the last seen first.
SELECT id, pid, host, started_at, seen_at, asleep::text[]
FROM workers
ORDER BY seen_at DESC, id
LIMIT :page_limit;
