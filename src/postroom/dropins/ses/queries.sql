-- API keys, as clients of SES name them.

-- name: find_key :maybe
-- The valid key with this id, otherwise the newest valid key with this name.
SELECT id, created_at, name, scopes, expires_at
FROM api_keys
WHERE (id = :key_id::bigint OR name = :name) AND revoked_at IS NULL
ORDER BY id IS NOT DISTINCT FROM :key_id::bigint DESC, id DESC
LIMIT 1;

-- name: use_key :maybe
-- The key with this id unless it was revoked; records that it is in use.
SELECT k.id, k.created_at, k.name, k.scopes, k.expires_at
FROM api_keys AS k
CROSS JOIN LATERAL touch_api_key(k.id)
WHERE k.id = :key_id AND k.revoked_at IS NULL;
