-- API keys, as clients of SES name them.

-- name: find_key :maybe
-- The key with this id or, if there is none, the newest with this name; never a revoked one.
SELECT id, created_at, name, scopes
FROM api_keys
WHERE (id = :key_id::bigint OR name = :name) AND revoked_at IS NULL
ORDER BY id IS NOT DISTINCT FROM :key_id::bigint DESC, id DESC
LIMIT 1;

-- name: use_key :maybe
-- The key with this id unless it was revoked, noting that it is in use, at most once a minute.
WITH used AS (
    UPDATE api_keys
    SET last_used_at = now()
    WHERE id = :key_id AND revoked_at IS NULL
        AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
)
SELECT id, created_at, name, scopes
FROM api_keys
WHERE id = :key_id AND revoked_at IS NULL;
