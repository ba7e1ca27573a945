-- API keys, known by the hash of the key.

-- name: find_key :maybe
-- The key with this hash, unless it was revoked.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at, key_hash
FROM api_keys
WHERE key_hash = :key_hash AND revoked_at IS NULL;

-- name: find_key_by_name :maybe
-- The newest key with this name that was not revoked.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at
FROM api_keys
WHERE name = :name AND revoked_at IS NULL
ORDER BY id DESC
LIMIT 1;

-- name: insert_key :one
-- A new key.
INSERT INTO api_keys (name, prefix, scopes, key_hash)
VALUES (:name, :prefix, :scopes, :key_hash)
RETURNING id, name, prefix, scopes, created_at, last_used_at, revoked_at;

-- name: list_keys :many
-- Every key, newest first, below a cursor; the revoked ones too.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at
FROM api_keys
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
RETURNING id, name, prefix, scopes, created_at, last_used_at, revoked_at;

-- name: touch_key :exec
-- Record that a key is in use; see functions/touch_api_key.sql.
SELECT touch_api_key(:key_id);
