-- The statements of webhook endpoints.

-- name: change_endpoint :maybe
-- Change an endpoint; NULL keeps the value.
UPDATE webhook_endpoints
SET url = coalesce(:url::text, url), topics = coalesce(:topics::text[], topics),
    description = coalesce(:description::text, description), format = coalesce(:format::text, format),
    updated_at = now()
WHERE id = :id
RETURNING id, status, created_at, updated_at, disabled_at, disabled_reason, url, topics, description, format,
    previous_until, secret_key_id, secret, previous_key_id, previous_secret,
    webhook_silent_topics(topics) AS silent_topics;

-- name: delete_endpoint :maybe
-- Delete an endpoint and its secrets.
DELETE FROM webhook_endpoints WHERE id = :id RETURNING url;

-- name: find_endpoint :maybe
-- One endpoint; its previous secret only until it expires.
SELECT id, status, created_at, updated_at, disabled_at, disabled_reason, url, topics, description, format,
    previous_until, secret_key_id, secret, CASE WHEN previous_until > now() THEN previous_key_id END AS previous_key_id,
    CASE WHEN previous_until > now() THEN previous_secret END AS previous_secret,
    webhook_silent_topics(topics) AS silent_topics
FROM webhook_endpoints
WHERE id = :id;

-- name: insert_endpoint :one
-- Register an endpoint.
INSERT INTO webhook_endpoints (id, url, topics, description, format, secret_key_id, secret)
VALUES (:id, :url, :topics, :description, :format, :secret_key_id, :secret)
RETURNING id, status, created_at, updated_at, disabled_at, disabled_reason, url, topics, description, format,
    previous_until, secret_key_id, secret, previous_key_id, previous_secret,
    webhook_silent_topics(topics) AS silent_topics;

-- name: list_endpoints :many
-- Endpoints in the order of their creation, after a cursor.
SELECT id, status, created_at, updated_at, disabled_at, disabled_reason, url, topics, description, format,
    previous_until, secret_key_id, secret, previous_key_id, previous_secret,
    webhook_silent_topics(topics) AS silent_topics
FROM webhook_endpoints
WHERE :after_id::bigint IS NULL OR id > :after_id
ORDER BY id
LIMIT :page_limit;

-- name: list_sealed :many
-- Every endpoint: each has a secret.
SELECT id
FROM webhook_endpoints
ORDER BY id;

-- name: list_signing :many
-- The endpoints of a claim with their secrets; the previous secret only until it expires.
SELECT id, status, created_at, updated_at, disabled_at, disabled_reason, url, topics, description, format,
    previous_until, secret_key_id, secret, CASE WHEN previous_until > now() THEN previous_key_id END AS previous_key_id,
    CASE WHEN previous_until > now() THEN previous_secret END AS previous_secret
FROM webhook_endpoints
WHERE id = ANY(:ids::bigint[]);

-- name: list_topic_endpoints :many
-- The enabled endpoints of a topic.
SELECT id, status, created_at, updated_at, disabled_at, disabled_reason, url, topics, description, format,
    previous_until, secret_key_id, secret, previous_key_id, previous_secret
FROM webhook_endpoints
WHERE status = 'enabled' AND :topic::text = ANY (topics)
ORDER BY id;

-- name: lock_secrets :maybe
-- The sealed secrets of an endpoint, locked until the transaction ends; the previous one only until it expires.
SELECT secret_key_id, secret, CASE WHEN previous_until > now() THEN previous_key_id END AS previous_key_id,
    CASE WHEN previous_until > now() THEN previous_secret END AS previous_secret
FROM webhook_endpoints
WHERE id = :id
FOR UPDATE;

-- name: replace_secrets :exec
-- Store the same secrets, sealed with another key. A previous secret that has expired is removed.
UPDATE webhook_endpoints
SET secret_key_id = :secret_key_id, secret = :secret, previous_key_id = :previous_key_id,
    previous_secret = :previous_secret, previous_until = CASE WHEN :previous_key_id::text IS NOT NULL THEN previous_until END
WHERE id = :id;

-- name: reserve_id :one
-- Reserve the id of a new endpoint, because its secret is sealed for this id.
SELECT nextval('webhook_endpoints_id_seq') AS id;

-- name: rotate_secret :maybe
-- Store a new secret; the previous one signs too until it expires.
UPDATE webhook_endpoints
SET previous_secret = secret, previous_key_id = secret_key_id, previous_until = now() + :overlap::interval,
    secret = :secret, secret_key_id = :secret_key_id, updated_at = now()
WHERE id = :id
RETURNING id, status, created_at, updated_at, disabled_at, disabled_reason, url, topics, description, format,
    previous_until, secret_key_id, secret, previous_key_id, previous_secret,
    webhook_silent_topics(topics) AS silent_topics;

-- name: set_endpoint_status :maybe
-- Enable or disable an endpoint; no row if the status is unchanged.
UPDATE webhook_endpoints
SET status = :status, disabled_at = CASE WHEN :status = 'disabled' THEN now() END, disabled_reason = :reason,
    updated_at = now()
WHERE id = :id AND status <> :status
RETURNING id;
