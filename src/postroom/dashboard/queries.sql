-- Statements of the dashboard: reads beyond the services of others, sessions that were signed out, sign-in codes.

-- name: count_sending :many
-- How many deliveries of each lane workers have claimed and not finished.
SELECT lane::text, sum(cardinality(delivery_ids))::bigint AS sending
FROM claims
GROUP BY lane
ORDER BY lane;

-- name: count_sign_in_codes :one
-- Codes that were requested within the last hour: for an address, for it by a client, and by a client; and whether the
-- operator with this address has signed in from the client's network within the last 90 days.
SELECT by_address, by_address_and_client,
    (SELECT count(*) FROM sign_in_codes
        WHERE client = :client AND created_at > now() - interval '1 hour') AS by_client,
    EXISTS (
        SELECT FROM operators AS o
        JOIN dashboard_sessions AS s ON s.owner_kind = 'operator' AND s.owner_id = o.id
        WHERE o.email = :email AND s.client = :client AND s.began_at > now() - interval '90 days') AS is_known_place
FROM (
    SELECT count(*) AS by_address, count(*) FILTER (WHERE client = :client) AS by_address_and_client
    FROM sign_in_codes
    WHERE address_hash = :address_hash AND created_at > now() - interval '1 hour'
) AS of_address;

-- name: end_session :exec
-- Refuse a session from now on, in every process. Sessions that have expired need no row any longer.
WITH expired AS (
    DELETE FROM ended_sessions WHERE expires_at < now()
)
INSERT INTO ended_sessions (nonce, expires_at)
VALUES (:nonce, :expires_at)
ON CONFLICT DO NOTHING;

-- name: find_session_key :maybe
-- The key a session was opened with, unless it was revoked, has expired, or the session was signed out.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota,
    from_domains
FROM api_keys
WHERE id = :key_id AND revoked_at IS NULL AND (expires_at > now()) IS NOT FALSE
    AND NOT EXISTS (SELECT FROM ended_sessions WHERE nonce = :nonce);

-- name: find_session_operator :maybe
-- The operator who opened a session, unless the operator was disabled or the session was signed out.
SELECT id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since, second_factor_since
FROM operators
WHERE id = :operator_id AND disabled_at IS NULL
    AND NOT EXISTS (SELECT FROM ended_sessions WHERE nonce = :nonce);

-- name: insert_sign_in_code :exec
-- A new code; codes of the day before are deleted.
WITH old AS (
    DELETE FROM sign_in_codes WHERE created_at < now() - interval '1 day'
)
INSERT INTO sign_in_codes (nonce_hash, expires_at, operator_id, address_hash, client, code_hash)
VALUES (:nonce_hash, now() + :lifetime::interval, :operator_id, :address_hash, :client, :code_hash);

-- name: list_partitions :many
-- The monthly partitions of large tables with their size; rows are the estimate of the last ANALYZE, or NULL before the first.
SELECT p.relname::text AS table_name, c.relname::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds,
    CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows, pg_total_relation_size(c.oid) AS bytes
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
JOIN pg_class AS p ON p.oid = i.inhparent AND p.relkind = 'p'
WHERE c.relnamespace = current_schema()::regnamespace
ORDER BY p.relname, c.relname DESC
LIMIT :page_limit;

-- name: list_workers :many
-- Who works here, the last seen first.
SELECT id, pid, host, started_at, seen_at, asleep::text[]
FROM workers
ORDER BY seen_at DESC, id
LIMIT :page_limit;

-- name: lock_sign_in_codes :exec
-- Lock the table against other writers until this transaction ends: concurrent requests cannot exceed a limit.
LOCK TABLE sign_in_codes IN SHARE ROW EXCLUSIVE MODE;

-- name: try_sign_in_code :maybe
-- Count an attempt at a code that can still be used, and return its hash and its operator.
UPDATE sign_in_codes
SET attempts = attempts + 1
WHERE nonce_hash = :nonce_hash AND used_at IS NULL AND expires_at > now() AND attempts < :most_attempts
RETURNING code_hash, operator_id;

-- name: use_sign_in_code :exec
-- A code works once.
UPDATE sign_in_codes
SET used_at = now()
WHERE nonce_hash = :nonce_hash AND used_at IS NULL;
