-- API keys, known by the hash of the key, and operators, known by their address.

-- name: change_key :maybe
-- Set the limits of a key that was not revoked.
UPDATE api_keys
SET expires_at = :expires_at, rate_per_minute = :rate_per_minute, daily_quota = :daily_quota, from_domains = :from_domains
WHERE id = :key_id AND revoked_at IS NULL
RETURNING id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota,
    from_domains;

-- name: change_operator_role :maybe
-- Give an operator another role; sessions continue with it.
UPDATE operators
SET role = :role
WHERE id = :operator_id
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since;

-- name: delete_operator :maybe
-- Remove an operator.
DELETE FROM operators
WHERE id = :operator_id
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since;

-- name: disable_operator :maybe
-- Disable an operator and end all sessions; a disabled one keeps its time.
UPDATE operators
SET disabled_at = coalesce(disabled_at, now()), sessions_since = clock_timestamp()
WHERE id = :operator_id
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since;

-- name: enable_operator :maybe
-- Let a disabled operator sign in again; sessions from before stay ended.
UPDATE operators
SET disabled_at = NULL
WHERE id = :operator_id
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since;

-- name: find_key_by_id :maybe
-- The key with this id, unless it was revoked; its row is locked until the transaction ends, because a change writes all
-- its limits.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota,
    from_domains
FROM api_keys
WHERE id = :key_id AND revoked_at IS NULL
FOR UPDATE;

-- name: find_key_by_name :maybe
-- The newest key with this name that was not revoked.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota,
    from_domains
FROM api_keys
WHERE name = :name AND revoked_at IS NULL
ORDER BY id DESC
LIMIT 1;

-- name: find_keys :many
-- The keys with these hashes that were not revoked.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota, from_domains,
    key_hash
FROM api_keys
WHERE key_hash = ANY(:key_hashes::bytea[]) AND revoked_at IS NULL;

-- name: find_operator :maybe
-- The operator with this id; its row is locked until the transaction ends, so that the audit log has the state before.
SELECT id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since
FROM operators
WHERE id = :operator_id
FOR UPDATE;

-- name: find_operator_by_email :maybe
-- The operator with this address.
SELECT id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since
FROM operators
WHERE email = :email;

-- name: insert_key :one
-- A new key.
INSERT INTO api_keys (name, prefix, scopes, key_hash, expires_at, rate_per_minute, daily_quota, from_domains)
VALUES (:name, :prefix, :scopes, :key_hash, :expires_at, :rate_per_minute, :daily_quota, :from_domains)
RETURNING id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota,
    from_domains;

-- name: insert_operator :maybe
-- A new operator, unless the address is taken.
INSERT INTO operators (email, role, origin)
VALUES (:email, :role, :origin)
ON CONFLICT DO NOTHING
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since;

-- name: list_keys :many
-- Every key, newest first, below a cursor; the revoked ones too.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota,
    from_domains
FROM api_keys
WHERE :before_id::bigint IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :page_limit;

-- name: list_operators :many
-- Every operator, newest first, below a cursor; the disabled ones too.
SELECT id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since
FROM operators
WHERE :before_id::bigint IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :page_limit;

-- name: lock_keys :exec
-- Lock the table against other writers until this transaction ends: two processes that start at once create one admin key.
LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE;

-- name: revoke_key :maybe
-- Revoke a key permanently.
UPDATE api_keys
SET revoked_at = now()
WHERE id = :key_id AND revoked_at IS NULL
RETURNING id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota,
    from_domains;

-- name: sign_in_operator :maybe
-- Record the sign-in of an operator who is not disabled.
UPDATE operators
SET last_sign_in_at = now()
WHERE id = :operator_id AND disabled_at IS NULL
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since;

-- name: touch_key :exec
-- Record that a key is in use; see functions/touch_api_key.sql.
SELECT touch_api_key(:key_id);
