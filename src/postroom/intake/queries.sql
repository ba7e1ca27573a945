-- Malformed commands.

-- name: count_malformed_commands :one
-- The number of commands neither resubmitted nor dismissed, counted up to a limit.
SELECT count(*) AS waiting
FROM (
    SELECT
    FROM malformed_commands
    WHERE resubmitted_at IS NULL AND dismissed_at IS NULL
    LIMIT :count_limit
) AS counted;

-- name: delete_old_malformed_commands :exec
-- Delete one bounded batch of malformed commands past their retention.
DELETE FROM malformed_commands
WHERE id IN (
    SELECT id
    FROM malformed_commands
    WHERE recorded_at < coalesce(:now::timestamptz, now()) - :retention::interval
    ORDER BY recorded_at
    LIMIT :batch_limit
);

-- name: dismiss_malformed_commands :many
-- Dismiss these commands; those resubmitted or dismissed before stay unchanged and are not returned.
UPDATE malformed_commands
SET dismissed_at = now()
WHERE id = ANY(:command_ids::bigint[]) AND resubmitted_at IS NULL AND dismissed_at IS NULL
RETURNING id;

-- name: find_malformed_command :maybe
-- One malformed command with its bytes.
SELECT id, recorded_at, resubmitted_at, dismissed_at, delivery_id, source, reason, detail, entry, length(raw) AS size, raw
FROM malformed_commands
WHERE id = :command_id;

-- name: group_malformed_commands :many
-- The waiting commands by reason, most frequent first, counted among the newest up to a limit.
SELECT reason, count(*) AS commands, min(recorded_at) AS oldest_at, max(recorded_at) AS newest_at, max(id) AS newest_id
FROM (
    SELECT id, reason, recorded_at
    FROM malformed_commands
    WHERE resubmitted_at IS NULL AND dismissed_at IS NULL
    ORDER BY id DESC
    LIMIT :count_limit
) AS waiting
GROUP BY reason
ORDER BY commands DESC, reason;

-- name: list_malformed_commands :many
-- Malformed commands, newest first, below a cursor: found by the first filter that is given,
-- filtered by the others; see `runtime.page.search_page`.
SELECT id, recorded_at, resubmitted_at, dismissed_at, delivery_id, source, reason, detail, entry, length(raw) AS size,
    is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place,
        (:resubmitted IS NULL OR (resubmitted_at IS NOT NULL) = :resubmitted)
        AND (:dismissed IS NULL OR (dismissed_at IS NOT NULL) = :dismissed)
        AND (:reason IS NULL OR reason = :reason)
        AND (:source IS NULL OR source = :source) AS is_match
    FROM (
        (SELECT * FROM malformed_commands
        WHERE :resubmitted::boolean AND resubmitted_at IS NOT NULL
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM malformed_commands
        WHERE :resubmitted IS NOT TRUE AND :dismissed::boolean AND dismissed_at IS NOT NULL
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM malformed_commands
        WHERE :resubmitted IS NOT TRUE AND :dismissed IS NOT TRUE AND reason BETWEEN :reason::text AND :reason
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY reason DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM malformed_commands
        WHERE :resubmitted IS NOT TRUE AND :dismissed IS NOT TRUE AND :reason IS NULL
            AND source BETWEEN :source::text AND :source
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY source DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM malformed_commands
        WHERE NOT :resubmitted AND NOT :dismissed AND :reason IS NULL AND :source IS NULL
            AND resubmitted_at IS NULL AND dismissed_at IS NULL
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM malformed_commands
        WHERE (:resubmitted IS NULL OR :dismissed IS NULL) AND :resubmitted IS NOT TRUE AND :dismissed IS NOT TRUE
            AND :reason IS NULL AND :source IS NULL
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound::bigint)
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: lock_malformed_command :maybe
-- One malformed command, locked until the end of the transaction so that concurrent resubmissions are serialised.
SELECT id, recorded_at, resubmitted_at, dismissed_at, delivery_id, source, reason, detail, entry, length(raw) AS size, raw
FROM malformed_commands
WHERE id = :command_id
FOR UPDATE;

-- name: mark_malformed_notified :one
-- Mark the malformed commands not yet reported as notified and return their number.
WITH notified AS (
    UPDATE malformed_commands
    SET notified_at = coalesce(:now::timestamptz, now())
    WHERE notified_at IS NULL AND resubmitted_at IS NULL AND dismissed_at IS NULL
    RETURNING id
)
SELECT count(*) AS notified
FROM notified;

-- name: mark_resubmitted :exec
-- Record the delivery of a resubmitted command.
UPDATE malformed_commands
SET resubmitted_at = now(), delivery_id = :delivery_id
WHERE id = :command_id AND resubmitted_at IS NULL;

-- name: record_malformed_commands :many
-- Record commands that could not be accepted; entries recorded before stay unchanged and are not returned.
INSERT INTO malformed_commands (entry, source, reason, detail, raw)
SELECT entry, source, reason, detail, raw
FROM unnest(:entry::text[], :source::text[], :reason::text[], :detail::text[], :raw::bytea[])
    AS command(entry, source, reason, detail, raw)
ON CONFLICT (entry, sha256(raw)) WHERE entry IS NOT NULL DO NOTHING
RETURNING id, reason;
