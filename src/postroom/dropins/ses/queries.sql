-- API keys, as clients of SES name them, and the signatures that were accepted.

-- name: claim_signature :maybe
-- Record a signature with the call that it was sent for; is_first is false if another call has used it.
INSERT INTO ses_signatures AS s (signature, call_hash)
VALUES (:signature, :call_hash)
ON CONFLICT (signature) DO UPDATE
SET call_hash = s.call_hash -- returns the row
RETURNING call_hash = :call_hash AS is_first;

-- name: drop_signatures :exec
-- Delete some signatures that have expired: each is valid for ten minutes at most, five before its date and five after.
DELETE FROM ses_signatures
WHERE signature IN (
    SELECT signature
    FROM ses_signatures
    WHERE used_at < now() - interval '10 minutes'
    ORDER BY used_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
);

-- name: find_key :maybe
-- The valid key with this id, otherwise the newest valid key with this name.
SELECT id, created_at, name, scopes, expires_at, last_used_at
FROM api_keys
WHERE (id = :key_id::bigint OR name = :name) AND revoked_at IS NULL
ORDER BY id IS NOT DISTINCT FROM :key_id::bigint DESC, id DESC
LIMIT 1;

-- name: find_keys :many
-- The keys with these ids that were not revoked.
SELECT id, created_at, name, scopes, expires_at, last_used_at
FROM api_keys
WHERE id = ANY(:key_ids::bigint[]) AND revoked_at IS NULL;

-- name: touch_key :exec
-- Record that a key is in use; see functions/touch_api_key.sql of http.
SELECT touch_api_key(:key_id);
