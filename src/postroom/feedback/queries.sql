-- The statements of feedback, in alphabetical order. Statements that depend on the time take :now; NULL selects the
-- database clock.

-- name: delete_old_bounces :exec
-- One bounded step of retention for reports; suppressions stay.
DELETE FROM bounces
WHERE id IN (
    SELECT id
    FROM bounces
    WHERE reported_at < coalesce(:now::timestamptz, now()) - :retention::interval
    ORDER BY reported_at
    LIMIT :batch_limit
);

-- name: delete_old_tokens :exec
-- One bounded step of retention: tokens of webhooks that are too old to be accepted again.
DELETE FROM used_feedback_tokens
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM used_feedback_tokens
    WHERE used_at < coalesce(:now::timestamptz, now()) - :retention::interval
    LIMIT :batch_limit
));

-- name: delete_old_unread :exec
-- One bounded step of retention: messages that are not reports.
DELETE FROM unread_feedback
WHERE id IN (
    SELECT id
    FROM unread_feedback
    WHERE received_at < coalesce(:now::timestamptz, now()) - :retention::interval
    LIMIT :batch_limit
);

-- name: find_erased :many
-- The addresses among these that are recipients of these deliveries under a pseudonym: they were erased.
SELECT named.address, erased_address(named.address) AS pseudonym
FROM unnest(:addresses::text[]) AS named(address)
WHERE EXISTS (
    SELECT
    FROM delivery_recipients AS r
    WHERE r.delivery_id = ANY(:delivery_ids::bigint[]) AND r.email = erased_address(named.address)
);

-- name: find_sent :many
-- Deliveries by id with their recipients, to compare reports with.
SELECT d.id, d.created_at,
    ARRAY(SELECT r.email FROM delivery_recipients AS r
        WHERE r.delivery_id = d.id AND r.kind <> 'reply_to' ORDER BY r.kind, r.position) AS recipients
FROM deliveries AS d
WHERE d.id = ANY(:delivery_ids::bigint[]) AND d.channel = 'email';

-- name: find_suppressions :many
-- The suppressions of one address; an erased address is found by its keyed hash.
SELECT id, address AS email, reason::text, scope::text, origin, created_at, until, campaign_id, sender_account_id,
    first_seen_at, last_seen_at, bounce_count, code, detail
FROM suppressions
WHERE address IN (lower(:address::text), erased_address(:address))
ORDER BY suppressions.scope DESC, suppressions.address DESC;

-- name: forget_soft_bounces :exec
-- Reset the soft bounces of an address that an operator lifted.
DELETE FROM soft_bounces WHERE address = lower(:address::text);

-- name: keep_unread :exec
-- Store the beginning of messages that are not reports; the same message once, with a limit per hour, in total and per
-- peer. Files that an operator reads have no limit.
INSERT INTO unread_feedback (received_at, origin, reason, peer, report_id, raw)
SELECT coalesce(:now::timestamptz, now()), origin, reason, peer, report_id, raw
FROM (
    SELECT *, row_number() OVER () AS place, row_number() OVER (PARTITION BY peer) AS place_of_peer
    FROM unnest(:origin::text[], :reason::text[], :peer::text[], :report_id::bytea[], :raw::bytea[])
        AS i(origin, reason, peer, report_id, raw)
) AS given
WHERE origin = 'ingest'
    OR (
        place + (
            SELECT count(*) FROM unread_feedback AS u
            WHERE u.received_at > coalesce(:now::timestamptz, now()) - interval '1 hour') <= :most
        AND (peer IS NULL OR place_of_peer + (
            SELECT count(*) FROM unread_feedback AS u
            WHERE u.received_at > coalesce(:now::timestamptz, now()) - interval '1 hour' AND u.peer = given.peer
        ) <= :most_per_peer)
    )
ON CONFLICT (report_id) DO NOTHING;

-- name: lift :many
-- Delete the suppressions of an address; with a reason, only those for that reason.
SELECT id, address AS email, reason::text, scope::text, origin, created_at, until, campaign_id, sender_account_id,
    first_seen_at, last_seen_at, bounce_count, code, detail
FROM lift_suppressions(:address::text, :reason::text::suppression_reason);

-- name: list_bounces :many
-- Reports, newest first, below a cursor: found by the first filter that is given,
-- filtered by the others; see `runtime.page.search_page`.
SELECT id, kind, class AS classification, delivery_id, campaign_id, sender_account_id, address AS email, code, enhanced,
    text, origin, reported_at, is_verified AS verified,
    is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place,
        (:address IS NULL OR address = lower(:address))
        AND (:kind IS NULL OR kind = :kind)
        AND (:is_verified IS NULL OR is_verified = :is_verified) AS is_match
    FROM (
        (SELECT * FROM bounces
        WHERE delivery_id = :delivery_id::bigint AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id + 0 DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM bounces
        WHERE :delivery_id IS NULL AND address BETWEEN lower(:address::text) AND lower(:address)
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY address DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM bounces
        WHERE :delivery_id IS NULL AND :address IS NULL AND :kind::text <> 'bounce'
            AND kind BETWEEN :kind AND :kind AND kind <> 'bounce'
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY kind DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM bounces
        WHERE :delivery_id IS NULL AND :address IS NULL AND (:kind = 'bounce') IS NOT FALSE AND NOT :is_verified::boolean
            AND NOT is_verified AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM bounces
        WHERE :delivery_id IS NULL AND :address IS NULL AND (:kind = 'bounce') IS NOT FALSE AND :is_verified IS NOT FALSE
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound::bigint)
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: list_changes :many
-- The history of an address, newest first.
SELECT id, at, change, reason::text, scope::text, until, origin, actor, note
FROM suppression_changes
WHERE address IN (lower(:address::text), erased_address(:address))
ORDER BY id DESC
LIMIT :page_limit;

-- name: list_export :many
-- All suppressions, oldest first, after a cursor.
SELECT id, address AS email, reason::text, scope::text, origin, created_at, until, campaign_id, sender_account_id,
    first_seen_at, last_seen_at, bounce_count, code, detail
FROM suppressions
WHERE id > coalesce(:after_id::bigint, 0)
ORDER BY id
LIMIT :page_limit;

-- name: list_suppressions :many
-- Suppressions, newest first, below a cursor: found by the first filter that is given,
-- filtered by the others; see `runtime.page.search_page`.
SELECT id, address AS email, reason::text, scope::text, origin, created_at, until, campaign_id, sender_account_id,
    first_seen_at, last_seen_at, bounce_count, code, detail,
    is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place,
        (:origin IS NULL OR origin = :origin)
        AND (:reason IS NULL OR reason = :reason::suppression_reason) AS is_match
    FROM (
        (SELECT * FROM suppressions
        WHERE :address::text IS NOT NULL AND address IN (lower(:address), erased_address(:address))
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id + 0 DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM suppressions
        WHERE :address IS NULL AND origin BETWEEN :origin::text AND :origin
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY origin DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM suppressions
        WHERE :address IS NULL AND :origin IS NULL
            AND reason BETWEEN :reason::text::suppression_reason AND :reason::suppression_reason
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY reason DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM suppressions
        WHERE :address IS NULL AND :origin IS NULL AND :reason IS NULL
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound::bigint)
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: mark_complaints_reported :one
-- Mark the complaints that no notice has reported, and count them.
WITH reported AS (
    UPDATE bounces
    SET notified_at = coalesce(:now::timestamptz, now())
    WHERE kind = 'complaint' AND is_verified AND notified_at IS NULL
    RETURNING delivery_id, campaign_id, origin
)
SELECT count(*) AS complaints, count(DISTINCT campaign_id) AS campaigns,
    array_agg(DISTINCT delivery_id ORDER BY delivery_id) FILTER (WHERE delivery_id IS NOT NULL) AS delivery_ids
FROM reported;

-- name: merge_suppressions :one
-- Suppress addresses; see functions/merge_suppressions.sql. A soft bounce holds for a day.
SELECT merge_suppressions(
    :address::text[], :scope::text[], :reason::text[],
    ARRAY(SELECT CASE WHEN r = 'soft_bounce' THEN coalesce(:now::timestamptz, now()) + interval '24 hours' END
        FROM unnest(:reason::text[]) WITH ORDINALITY AS i(r, o) ORDER BY o),
    :origin::text[], :campaign_id::bigint[], array_fill(NULL::bigint, ARRAY[cardinality(:address::text[])]),
    array_fill(NULL::text, ARRAY[cardinality(:address::text[])]), :detail::text[],
    array_fill(0, ARRAY[cardinality(:address::text[])]), coalesce(:now::timestamptz, now())
) AS written;

-- name: record_acceptances :one
-- Record that mail was accepted; see functions/record_acceptances.sql.
SELECT record_acceptances(:delivery_id::bigint[], :address::text[], coalesce(:now::timestamptz, now())) AS removed;

-- name: record_feedback :one
-- Store reports and apply them; see functions/record_feedback.sql.
SELECT record_feedback(
    p_kind => :kind::text[],
    p_class => :class::text[],
    p_delivery_id => :delivery_id::bigint[],
    p_address => :address::text[],
    p_code => :code::integer[],
    p_enhanced => :enhanced::text[],
    p_text => :text::text[],
    p_is_verified => :is_verified::boolean[],
    p_origin => :origin::text[],
    p_report_id => :report_id::bytea[],
    p_reported_at => :reported_at::timestamptz[],
    p_now => coalesce(:now::timestamptz, now())
) AS recorded;

-- name: say_who :exec
-- Set the actor and the reason of this transaction's changes; `quiet` suppresses the facts of a large import.
SELECT set_config('postroom.actor', :actor::text, true), set_config('postroom.note', :note::text, true),
    set_config('postroom.quiet', CASE WHEN :quiet::boolean THEN 'on' ELSE '' END, true);

-- name: use_token :maybe
-- Use a one-time token; no row if it was used before.
INSERT INTO used_feedback_tokens (token, used_at)
VALUES (:token, coalesce(:now::timestamptz, now()))
ON CONFLICT (token) DO NOTHING
RETURNING token;
