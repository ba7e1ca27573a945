-- name: delete_old_mass_actions :one
-- Delete a step of the actions that finished long ago.
WITH deleted AS (
    DELETE FROM mass_actions
    WHERE id IN (
        SELECT id
        FROM mass_actions
        WHERE finished_at < coalesce(:now::timestamptz, now()) - :retention::interval
        LIMIT :batch_limit
    )
    RETURNING id
)
SELECT count(*) AS deleted FROM deleted;

-- name: find_mass_action :maybe
-- One action.
SELECT id, kind, actor, filter::text, changed, skipped::text, created_at, finished_at
FROM mass_actions
WHERE id = :id;

-- name: find_started :maybe
-- The action that an actor started with an idempotency key.
SELECT id, kind, actor, filter::text, changed, skipped::text, created_at, finished_at
FROM mass_actions
WHERE actor = :actor AND idempotency_key = :idempotency_key;

-- name: list_mass_actions :many
-- Actions, newest first, below a cursor.
SELECT id, kind, actor, filter::text, changed, skipped::text, created_at, finished_at
FROM mass_actions
WHERE :before_id::bigint IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :page_limit;

-- name: list_standings :many
-- The facts that decide whether these deliveries can be changed, and the deliveries that have them in common.
SELECT array_agg(id) AS ids, state, has_body, is_expired, is_campaign_cancelled, is_resent, is_withdrawn
FROM (
    SELECT d.id, d.state::text,
        EXISTS (SELECT FROM delivery_payloads AS p WHERE p.delivery_id = d.id) AS has_body,
        coalesce(d.expires_at <= coalesce(:now::timestamptz, now()), false) AS is_expired,
        EXISTS (SELECT FROM campaigns AS c WHERE c.id = d.campaign_id AND c.status = 'cancelled')
            AS is_campaign_cancelled,
        EXISTS (SELECT FROM deliveries AS copy WHERE copy.resend_of = d.id) AS is_resent,
        d.state = 'dead_letter' AND NOT EXISTS (SELECT FROM dead_letters AS l WHERE l.delivery_id = d.id)
            AS is_withdrawn
    FROM deliveries AS d
    WHERE d.id = ANY(:delivery_ids::bigint[])
) AS each
GROUP BY state, has_body, is_expired, is_campaign_cancelled, is_resent, is_withdrawn;

-- name: list_unfinished :many
-- Actions with steps left, oldest first.
SELECT id FROM mass_actions WHERE finished_at IS NULL ORDER BY id;

-- name: lock_deliveries :many
-- Lock these deliveries, except the ones that a worker is changing. In one order with the claims, which skip locked ones too.
SELECT id
FROM deliveries
WHERE id = ANY(:delivery_ids::bigint[])
ORDER BY id
FOR UPDATE SKIP LOCKED;

-- name: lock_mass_action :maybe
-- Lock an unfinished action for one step; no row if another process runs a step of it.
SELECT kind, filter::text, before_id, coalesce(from_id, before_id) AS from_id, pending
FROM mass_actions
WHERE id = :id AND finished_at IS NULL
FOR UPDATE SKIP LOCKED;

-- name: record_step :one
-- Add the counts of a step, and store where the next one begins, and the deliveries that it looks at again; without either, the
-- action is finished. The mail that a cancel waits for is counted as it is now, not added up.
UPDATE mass_actions
SET changed = changed + :changed::bigint,
    skipped = (
        SELECT coalesce(jsonb_object_agg(reason, amount), '{}')
        FROM (
            SELECT key AS reason, sum(value::bigint) AS amount
            FROM (
                SELECT key, value FROM jsonb_each_text(skipped) WHERE kind <> 'cancel' OR key <> 'sending'
                UNION ALL
                SELECT key, value FROM jsonb_each_text(:skipped::text::jsonb)
            ) AS counted
            GROUP BY key
        ) AS summed
    ),
    before_id = coalesce(:before_id::bigint, 0),
    pending = :pending::bigint[],
    finished_at = CASE WHEN :before_id IS NULL AND :pending = '{}' THEN coalesce(:now::timestamptz, now()) END
WHERE id = :id
RETURNING id, kind, actor, filter::text, changed, skipped::text, created_at, finished_at;

-- name: start_mass_action :maybe
-- Start an action; no row if the actor has used the idempotency key.
INSERT INTO mass_actions (kind, actor, idempotency_key, filter, before_id, from_id)
VALUES (:kind, :actor, :idempotency_key, :filter::text::jsonb, :before_id::bigint, :before_id)
ON CONFLICT (actor, idempotency_key) DO NOTHING
RETURNING id, kind, actor, filter::text, changed, skipped::text, created_at, finished_at;
