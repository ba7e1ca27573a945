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
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since;

-- name: count_recovery_codes :one
-- The number of unused recovery codes of an operator.
SELECT coalesce((SELECT cardinality(recovery_hashes) FROM operators WHERE id = :operator_id), 0) AS left_over;

-- name: delete_operator :maybe
-- Remove an operator.
DELETE FROM operators
WHERE id = :operator_id
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since;

-- name: disable_operator :maybe
-- Disable an operator and end all sessions; a disabled one keeps its time.
UPDATE operators
SET disabled_at = coalesce(disabled_at, now()), sessions_since = clock_timestamp()
WHERE id = :operator_id
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since;

-- name: enable_operator :maybe
-- Let a disabled operator sign in again; sessions from before stay ended.
UPDATE operators
SET disabled_at = NULL
WHERE id = :operator_id
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since;

-- name: end_operator_sessions :maybe
-- End all sessions of an operator.
UPDATE operators
SET sessions_since = clock_timestamp()
WHERE id = :operator_id
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since;

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
SELECT id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since
FROM operators
WHERE id = :operator_id
FOR UPDATE;

-- name: find_operator_by_email :maybe
-- The operator with this address.
SELECT id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since
FROM operators
WHERE email = :email;

-- name: find_session_method :maybe
-- How a session was opened.
SELECT method FROM dashboard_sessions WHERE nonce = :nonce;

-- name: has_identity :maybe
-- Whether an operator is this account of a provider.
SELECT id FROM operators WHERE id = :operator_id AND oidc_issuer = :issuer AND oidc_subject = :subject;

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
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since;

-- name: insert_session :one
-- A session that begins, and whether its owner had sessions before, also from this network. Sessions that ended 90 days
-- ago are deleted.
WITH old AS (
    DELETE FROM dashboard_sessions WHERE expires_at < now() - interval '90 days'
), earlier AS (
    SELECT count(*) AS sessions, count(*) FILTER (WHERE client = :client) AS sessions_here
    FROM dashboard_sessions
    WHERE owner_kind = :owner_kind AND owner_id = :owner_id
), new AS (
    INSERT INTO dashboard_sessions (nonce, expires_at, owner_id, owner_kind, method, client, browser)
    VALUES (:nonce, :expires_at, :owner_id, :owner_kind, :method, :client, :browser)
    ON CONFLICT DO NOTHING
)
SELECT sessions > 0 AND sessions_here = 0 AS is_new_place FROM earlier;

-- name: keep_identity :maybe
-- Keep the account with which an operator signed in first at a provider.
UPDATE operators
SET oidc_issuer = :issuer, oidc_subject = :subject
WHERE id = :operator_id AND (oidc_subject IS NULL OR oidc_issuer <> :issuer)
RETURNING id;

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
SELECT id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since
FROM operators
WHERE :before_id::bigint IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :page_limit;

-- name: list_second_factors :many
-- Every operator with a second factor.
SELECT id FROM operators WHERE totp_secret IS NOT NULL ORDER BY id;

-- name: list_sessions :many
-- The open sessions of an owner, newest first.
SELECT nonce, began_at, seen_at, expires_at, method, client, browser
FROM dashboard_sessions AS s
WHERE owner_kind = :owner_kind AND owner_id = :owner_id AND began_at >= :since::timestamptz AND expires_at > now()
    AND seen_at > now() - :idle::interval AND NOT EXISTS (SELECT FROM ended_sessions AS e WHERE e.nonce = s.nonce)
ORDER BY began_at DESC, nonce
LIMIT 200;

-- name: lock_keys :exec
-- Lock the table against other writers until this transaction ends: two processes that start at once create one admin key.
LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE;

-- name: lock_second_factor :maybe
-- The sealed secret of an operator's app, locked until the transaction ends.
SELECT totp_secret, totp_key_id FROM operators WHERE id = :operator_id AND totp_secret IS NOT NULL FOR UPDATE;

-- name: remove_second_factor :maybe
-- Remove the second factor of an operator who has one.
UPDATE operators
SET second_factor_since = NULL, totp_secret = NULL, totp_key_id = NULL, totp_step = 0, totp_wrong = 0, recovery_hashes = '{}'
WHERE id = :operator_id AND second_factor_since IS NOT NULL
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since;

-- name: revoke_key :maybe
-- Revoke a key permanently.
UPDATE api_keys
SET revoked_at = now()
WHERE id = :key_id AND revoked_at IS NULL
RETURNING id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_per_minute, daily_quota,
    from_domains;

-- name: seal_second_factor :exec
-- Store the same secret, sealed with another key.
UPDATE operators SET totp_secret = :totp_secret, totp_key_id = :totp_key_id WHERE id = :operator_id;

-- name: set_recovery_codes :maybe
-- Replace the recovery codes of an operator who has a second factor.
UPDATE operators
SET recovery_hashes = :recovery_hashes
WHERE id = :operator_id AND second_factor_since IS NOT NULL
RETURNING id;

-- name: set_second_factor :maybe
-- Give an operator a second factor, unless there is one.
UPDATE operators
SET second_factor_since = now(), totp_secret = :totp_secret, totp_key_id = :totp_key_id, totp_step = :totp_step, totp_wrong = 0,
    recovery_hashes = :recovery_hashes
WHERE id = :operator_id AND second_factor_since IS NULL
RETURNING id;

-- name: sign_in_operator :maybe
-- Record the sign-in of an operator who is not disabled.
UPDATE operators
SET last_sign_in_at = now()
WHERE id = :operator_id AND disabled_at IS NULL
RETURNING id, email, role, origin, created_at, last_sign_in_at, disabled_at, sessions_since,
    second_factor_since;

-- name: touch_key :exec
-- Record that a key is in use; see functions/touch_api_key.sql.
SELECT touch_api_key(:key_id);

-- name: touch_session :exec
-- Record that a session is in use.
UPDATE dashboard_sessions SET seen_at = clock_timestamp() WHERE nonce = :nonce;

-- name: try_second_factor :maybe
-- Count a try of a second factor, unless the tries of an hour are spent, and return what it is compared with.
UPDATE operators
SET totp_wrong = CASE WHEN totp_wrong_since < now() - interval '1 hour' THEN 1 ELSE totp_wrong + 1 END,
    totp_wrong_since = CASE WHEN totp_wrong_since < now() - interval '1 hour' THEN now() ELSE totp_wrong_since END
WHERE id = :operator_id AND second_factor_since IS NOT NULL
    AND (totp_wrong < :most_tries OR totp_wrong_since < now() - interval '1 hour')
RETURNING totp_secret, totp_key_id, totp_step, recovery_hashes;

-- name: use_recovery_code :maybe
-- A recovery code works once.
UPDATE operators
SET recovery_hashes = array_remove(recovery_hashes, :code_hash::bytea), totp_wrong = 0
WHERE id = :operator_id AND :code_hash::bytea = ANY (recovery_hashes)
RETURNING id;

-- name: use_totp_step :maybe
-- A code of an app works once.
UPDATE operators
SET totp_step = :step, totp_wrong = 0
WHERE id = :operator_id AND totp_step < :step
RETURNING id;
