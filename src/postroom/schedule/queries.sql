-- Everything the schedule asks of the database, in alphabetical order. Statements that depend on the time take :now;
-- NULL leaves it to the database's clock. Whoever changes a person's events holds the person's row first, except the
-- claim, which never waits: it passes over what somebody else holds and finds it again at the next look.

-- name: cancel_event :maybe
-- End a planned event by hand, if it is still this version and has not begun. Its key stays used.
UPDATE scheduled_events
SET status = 'FAILED', failure_reason = :failure_reason, version = version + 1
WHERE id = :event_id AND version = :version AND status = 'PENDING'
RETURNING id, user_id, event_type, status::text, target_timestamp_utc, target_timestamp_local, target_timezone, executed_at,
    failure_reason, retry_count, version, idempotency_key, delivery_payload::text, late_by, delivery_id, occasion_id,
    moved_from, created_at, updated_at;

-- name: claim_due :many
-- Hold what is due, oldest first, a hundred at a time, with the person as they are now. The status and the limit are
-- written out, or the planner could not see that the partial index gives the rows in order and that few are wanted.
-- Whom plain SQL changed is passed over until the sweep has planned anew; as a plain comparison the planner would take
-- that for a rare case and read and sort everything.
WITH due AS (
    SELECT e.id, u.first_name, u.last_name, u.date_of_birth, u.timezone, u.email, u.webhook_url, u.locale,
        u.template
    FROM scheduled_events AS e
    JOIN users AS u ON u.id = e.user_id
    WHERE e.status = 'PENDING'
        AND e.target_timestamp_utc <= coalesce(:now::timestamptz, now())
        AND CASE WHEN u.planned_version = 0 THEN true ELSE u.planned_version = u.version END
    ORDER BY e.target_timestamp_utc
    LIMIT 100
    FOR NO KEY UPDATE OF e SKIP LOCKED
    FOR NO KEY UPDATE OF u SKIP LOCKED
),
claimed AS (
    UPDATE scheduled_events AS e
    SET status = 'PROCESSING', claim_id = :claim_id::uuid, version = e.version + 1,
        lease_expires_at = coalesce(:now::timestamptz, now()) + :lease::interval
    FROM due
    WHERE e.id = due.id
    RETURNING e.id, e.user_id, e.event_type, e.occasion_id, e.target_timestamp_utc, e.target_timestamp_local,
        e.planned_at, e.idempotency_key, e.delivery_payload, e.moved_from,
        due.first_name, due.last_name, due.date_of_birth, due.timezone, due.email, due.webhook_url,
        due.locale, due.template
)
SELECT claimed.id, claimed.user_id, claimed.event_type, claimed.occasion_id, target_timestamp_utc,
    target_timestamp_local, planned_at, idempotency_key, delivery_payload::text, moved_from, first_name, last_name,
    date_of_birth, timezone, email, webhook_url, locale, claimed.template, o.message, o.rule::text, o.template AS occasion_template,
    coalesce(:now::timestamptz, now()) AS claimed_at
FROM claimed
LEFT JOIN user_occasions AS o ON o.id = claimed.occasion_id
ORDER BY target_timestamp_utc;

-- name: delete_events :exec
-- Forget planned events that nothing is planned for any more.
DELETE FROM scheduled_events
WHERE id = ANY(:event_ids::uuid[]) AND status = 'PENDING';

-- name: delete_occasion :maybe
-- Forget an occasion, and its events with it.
DELETE FROM user_occasions
WHERE id = :occasion_id AND user_id = :user_id
RETURNING id;

-- name: delete_old_events :exec
-- One bounded step of retention: events that ended long ago.
DELETE FROM scheduled_events
WHERE id IN (
    SELECT id
    FROM scheduled_events
    WHERE status IN ('COMPLETED', 'FAILED')
        AND target_timestamp_utc < coalesce(:now::timestamptz, now()) - :retention::interval
    LIMIT :batch_limit
    FOR UPDATE SKIP LOCKED
);

-- name: delete_user :maybe
-- Forget a person, and everything planned for them.
DELETE FROM users
WHERE id = :user_id
RETURNING id;

-- name: end_occasions :exec
-- Remember of which occasions nothing is still to come.
UPDATE user_occasions
SET is_over = true
WHERE id = ANY(:occasion_ids::uuid[]) AND NOT is_over;

-- name: find_basis :maybe
-- What the planned targets were computed with.
SELECT basis
FROM schedule_state;

-- name: find_event :maybe
-- One event.
SELECT id, user_id, event_type, status::text, target_timestamp_utc, target_timestamp_local, target_timezone, executed_at,
    failure_reason, retry_count, version, idempotency_key, delivery_payload::text, late_by, delivery_id, occasion_id,
    moved_from, created_at, updated_at
FROM scheduled_events
WHERE id = :event_id;

-- name: find_next_due :one
-- When the next event falls due, if any is planned, what time it is, and whether one is due that nobody has claimed.
SELECT (
        SELECT min(target_timestamp_utc)
        FROM scheduled_events
        WHERE status = 'PENDING' AND target_timestamp_utc > coalesce(:now::timestamptz, now())
    ) AS due_at,
    coalesce(:now::timestamptz, now()) AS asked_at,
    EXISTS (
        SELECT
        FROM scheduled_events
        WHERE status = 'PENDING' AND target_timestamp_utc <= coalesce(:now::timestamptz, now())
    ) AS is_due;

-- name: find_user :maybe
-- One person.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template
FROM users
WHERE id = :user_id;

-- name: hand_over :many
-- Tie claimed events to their deliveries, or end them, and plan what follows each. Only rows still held by the claim are
-- touched; those ids are returned, every other was lost. An event whose delivery already ended ends with it; without a
-- failure reason of its own, its recipient was suppressed.
WITH handed AS (
    UPDATE scheduled_events AS e
    SET delivery_id = i.delivery_id,
        status = i.status::scheduled_event_status,
        executed_at = CASE WHEN i.status <> 'PROCESSING' THEN coalesce(:now::timestamptz, now()) END,
        failure_reason = CASE WHEN i.status = 'FAILED'
            THEN coalesce(i.failure_reason, explain_suppression(i.delivery_id)) END,
        late_by = i.late_by,
        version = e.version + 1
    FROM unnest(:event_id::uuid[], :delivery_id::bigint[], :status::text[], :failure_reason::text[], :late_by::interval[])
        AS i(event_id, delivery_id, status, failure_reason, late_by)
    -- Only what is PROCESSING has a claim (scheduled_events_claim_while_processing). Asking for the status as well would
    -- offer the planner the index of leases, and each batch would then read all that is being processed.
    WHERE e.id = i.event_id AND e.claim_id = :claim_id::uuid
    RETURNING e.id
),
followed AS (
    INSERT INTO scheduled_events (
        user_id, event_type, occasion_id, target_timestamp_utc, target_timestamp_local, target_timezone,
        idempotency_key, delivery_payload, planned_at, created_at
    )
    -- What fell due during an outage is as late as its time is past, however lately it was planned.
    SELECT i.*, least(i.target_utc, coalesce(:now::timestamptz, now())), coalesce(:now::timestamptz, now())
    FROM unnest(
        :user_id::uuid[], :kind::text[], :occasion_id::uuid[], :target_utc::timestamptz[], :target_local::timestamp[],
        :timezone::text[], :idempotency_key::text[], :payload::text[]::jsonb[]
    ) AS i(user_id, kind, occasion_id, target_utc, target_local, timezone, idempotency_key, payload)
    ON CONFLICT DO NOTHING
)
SELECT id FROM handed;

-- name: has_planned :one
-- Whether something is planned for an occasion.
SELECT EXISTS (SELECT FROM scheduled_events WHERE occasion_id = :occasion_id AND status = 'PENDING') AS is_planned;

-- name: insert_events :many
-- Plan events. One that exists already, by its key or as the planned one of its occasion, stays as it is. Returns whose.
INSERT INTO scheduled_events (
    user_id, event_type, occasion_id, target_timestamp_utc, target_timestamp_local, target_timezone,
    idempotency_key, delivery_payload, planned_at, created_at
)
-- What fell due before it was planned is as late as its time is past.
SELECT i.*, least(i.target_utc, coalesce(:now::timestamptz, now())), coalesce(:now::timestamptz, now())
FROM unnest(
    :user_id::uuid[], :kind::text[], :occasion_id::uuid[], :target_utc::timestamptz[], :target_local::timestamp[],
    :timezone::text[], :idempotency_key::text[], :payload::text[]::jsonb[]
) AS i(user_id, kind, occasion_id, target_utc, target_local, timezone, idempotency_key, payload)
ON CONFLICT DO NOTHING
RETURNING user_id;

-- name: insert_occasion :one
-- Remember an occasion of a person.
INSERT INTO user_occasions (user_id, event_type, message, rule, template)
VALUES (:user_id, :kind, :message, :rule::text::jsonb, :template)
RETURNING id, user_id, event_type, message, rule::text, template, created_at;

-- name: insert_users :many
-- Store people, planned for in the same transaction.
INSERT INTO users (
    first_name, last_name, date_of_birth, timezone, email, webhook_url, locale, template, planned_version, created_at,
    updated_at
)
SELECT i.*, 1, coalesce(:now::timestamptz, now()), coalesce(:now::timestamptz, now())
FROM unnest(
    :first_name::text[], :last_name::text[], :date_of_birth::date[], :timezone::text[], :email::text[],
    :webhook_url::text[], :locale::text[], :template::text[]
) AS i
RETURNING id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template;

-- name: leave_to_scheduler :exec
-- Leave people to the next sweep, if schedulers plan with something other than whoever stored them: other times of day,
-- other rules of time zones.
UPDATE users
SET planned_version = -1
WHERE id = ANY(:user_ids::uuid[]) AND EXISTS (SELECT FROM schedule_state WHERE basis <> :basis);

-- name: list_latest_events :many
-- Events by any of the filters, the latest target first, from a cursor on. Each status is read in the order of its index,
-- so that a page costs the same however many events there are; what is PENDING has an index of its own.
WITH planned AS (
    SELECT *
    FROM scheduled_events
    WHERE status = 'PENDING' AND 'PENDING' = ANY(:statuses::text[])
        AND (:kind::text IS NULL OR event_type = :kind)
        AND (:user_id::uuid IS NULL OR user_id = :user_id)
        AND (:is_late::boolean IS NULL OR (late_by IS NOT NULL) = :is_late)
        AND (:due_from::timestamptz IS NULL OR target_timestamp_utc >= :due_from)
        AND (:due_before::timestamptz IS NULL OR target_timestamp_utc < :due_before)
        AND (:last_id::uuid IS NULL OR (target_timestamp_utc, id) < (:last_at::timestamptz, :last_id))
    ORDER BY target_timestamp_utc DESC, id DESC
    LIMIT :page_limit
),
begun AS (
    SELECT e.*
    FROM unnest(:statuses::text[]) AS s(status)
    CROSS JOIN LATERAL (
        SELECT *
        FROM scheduled_events AS e
        WHERE e.status = s.status::scheduled_event_status AND e.status <> 'PENDING'
            AND (:kind::text IS NULL OR event_type = :kind)
            AND (:user_id::uuid IS NULL OR user_id = :user_id)
            AND (:is_late::boolean IS NULL OR (late_by IS NOT NULL) = :is_late)
            AND (:due_from::timestamptz IS NULL OR target_timestamp_utc >= :due_from)
            AND (:due_before::timestamptz IS NULL OR target_timestamp_utc < :due_before)
            AND (:last_id::uuid IS NULL OR (target_timestamp_utc, id) < (:last_at::timestamptz, :last_id))
        ORDER BY target_timestamp_utc DESC, id DESC
        LIMIT :page_limit
    ) AS e
)
SELECT id, user_id, event_type, status::text, target_timestamp_utc, target_timestamp_local, target_timezone, executed_at,
    failure_reason, retry_count, version, idempotency_key, delivery_payload::text, late_by, delivery_id, occasion_id,
    moved_from, created_at, updated_at
FROM (SELECT * FROM planned UNION ALL SELECT * FROM begun) AS e
ORDER BY target_timestamp_utc DESC, id DESC
LIMIT :page_limit;

-- name: list_occasions :many
-- The occasions of some people.
SELECT id, user_id, event_type, message, rule::text, template, created_at
FROM user_occasions
WHERE user_id = ANY(:user_ids::uuid[])
ORDER BY user_id, id;

-- name: list_soonest_events :many
-- Events by any of the filters, the soonest target first, from a cursor on. Each status is read in the order of its index,
-- so that a page costs the same however many events there are; what is PENDING has an index of its own.
WITH planned AS (
    SELECT *
    FROM scheduled_events
    WHERE status = 'PENDING' AND 'PENDING' = ANY(:statuses::text[])
        AND (:kind::text IS NULL OR event_type = :kind)
        AND (:user_id::uuid IS NULL OR user_id = :user_id)
        AND (:is_late::boolean IS NULL OR (late_by IS NOT NULL) = :is_late)
        AND (:due_from::timestamptz IS NULL OR target_timestamp_utc >= :due_from)
        AND (:due_before::timestamptz IS NULL OR target_timestamp_utc < :due_before)
        AND (:last_id::uuid IS NULL OR (target_timestamp_utc, id) > (:last_at::timestamptz, :last_id))
    ORDER BY target_timestamp_utc, id
    LIMIT :page_limit
),
begun AS (
    SELECT e.*
    FROM unnest(:statuses::text[]) AS s(status)
    CROSS JOIN LATERAL (
        SELECT *
        FROM scheduled_events AS e
        WHERE e.status = s.status::scheduled_event_status AND e.status <> 'PENDING'
            AND (:kind::text IS NULL OR event_type = :kind)
            AND (:user_id::uuid IS NULL OR user_id = :user_id)
            AND (:is_late::boolean IS NULL OR (late_by IS NOT NULL) = :is_late)
            AND (:due_from::timestamptz IS NULL OR target_timestamp_utc >= :due_from)
            AND (:due_before::timestamptz IS NULL OR target_timestamp_utc < :due_before)
            AND (:last_id::uuid IS NULL OR (target_timestamp_utc, id) > (:last_at::timestamptz, :last_id))
        ORDER BY target_timestamp_utc, id
        LIMIT :page_limit
    ) AS e
)
SELECT id, user_id, event_type, status::text, target_timestamp_utc, target_timestamp_local, target_timezone, executed_at,
    failure_reason, retry_count, version, idempotency_key, delivery_payload::text, late_by, delivery_id, occasion_id,
    moved_from, created_at, updated_at
FROM (SELECT * FROM planned UNION ALL SELECT * FROM begun) AS e
ORDER BY target_timestamp_utc, id
LIMIT :page_limit;

-- name: list_user_events :many
-- What planning has to know: what is planned for some people, and what was begun lately enough to matter.
SELECT id, user_id, event_type, occasion_id, status::text, target_timestamp_utc, target_timestamp_local, target_timezone,
    version, idempotency_key, delivery_payload::text, moved_from,
    status = 'PROCESSING' AND delivery_id IS NULL AS is_claimed_only
FROM scheduled_events
WHERE user_id = ANY(:user_ids::uuid[])
    AND (status = 'PENDING' OR target_timestamp_utc > coalesce(:now::timestamptz, now()) - interval '800 days');

-- name: list_users :many
-- People, newest first, below a cursor.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template
FROM users
WHERE :before_id::uuid IS NULL OR (created_at, id) < (:before_at::timestamptz, :before_id)
ORDER BY created_at DESC, id DESC
LIMIT :page_limit;

-- name: lock_unplanned_users :many
-- Hold people whom plain SQL added or changed since they were last planned for.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template, unplanned_since, planned_version
FROM users
WHERE planned_version <> version
ORDER BY id
LIMIT :batch_limit
FOR NO KEY UPDATE SKIP LOCKED;

-- name: lock_unscheduled_users :many
-- Look through people in order of id, a thousand at a time, and hold those who have a birthday or an occasion for which
-- nothing is planned; `last_id` is how far it looked. The limit is written out, and the questions are asked person by
-- person, or the planner would rather read all events there are.
WITH looked AS MATERIALIZED (
    SELECT id, planned_version = version AS is_planned
    FROM users
    WHERE id > coalesce(:after_id::uuid, '00000000-0000-0000-0000-000000000000')
    ORDER BY id
    LIMIT 1000
),
lacking AS (
    SELECT looked.id
    FROM looked
    LEFT JOIN LATERAL (
        SELECT e.id
        FROM scheduled_events AS e
        WHERE e.user_id = looked.id AND e.event_type = 'BIRTHDAY' AND e.occasion_id IS NULL AND e.status = 'PENDING'
        LIMIT 1
    ) AS birthday ON true
    LEFT JOIN LATERAL (
        SELECT o.id
        FROM user_occasions AS o
        LEFT JOIN LATERAL (
            SELECT e.id
            FROM scheduled_events AS e
            WHERE e.user_id = o.user_id AND e.event_type = o.event_type AND e.occasion_id = o.id
                AND e.status = 'PENDING'
            LIMIT 1
        ) AS planned ON true
        WHERE o.user_id = looked.id AND NOT o.is_over AND planned.id IS NULL
        LIMIT 1
    ) AS forgotten ON true
    WHERE looked.is_planned AND (birthday.id IS NULL OR forgotten.id IS NOT NULL)
),
held AS (
    SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template
    FROM users
    WHERE id = ANY(ARRAY(SELECT id FROM lacking)) AND planned_version = version
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT held.*, looked_to.last_id
FROM (SELECT id AS last_id FROM looked ORDER BY id DESC LIMIT 1) AS looked_to
LEFT JOIN held ON true;

-- name: lock_user :maybe
-- Hold one person: nobody else plans, claims or changes them until this transaction ends.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template, CASE WHEN planned_version <> version THEN unplanned_since END AS unplanned_since, planned_version
FROM users
WHERE id = :user_id
FOR UPDATE;

-- name: lock_users :many
-- Hold people who are planned for, in order of id, after one of them. The others are the sweep's: it plans as of when they
-- were written, and whoever planned for them as of now would lose what fell due since. Asked as a plain comparison, the
-- planner would take the planned for a rare case, and read and sort everybody at each step.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template
FROM users
WHERE id > coalesce(:after_id::uuid, '00000000-0000-0000-0000-000000000000')
    AND CASE WHEN planned_version = version THEN true ELSE false END
ORDER BY id
LIMIT :batch_limit
FOR NO KEY UPDATE;

-- name: mark_planned :exec
-- Remember that people were planned for as they are now, and for which of them not everything could be.
UPDATE users
SET planned_version = version, unplanned_since = NULL, is_unplannable = id = ANY(:unplannable_ids::uuid[])
WHERE id = ANY(:user_ids::uuid[])
    AND (planned_version <> version OR is_unplannable <> (id = ANY(:unplannable_ids::uuid[])));

-- name: measure_schedule :one
-- What should have been handed over and what waits to be planned, each counted up to a bound, and since when the first.
WITH due AS (
    SELECT greatest(target_timestamp_utc, planned_at) AS since
    FROM scheduled_events
    WHERE status = 'PENDING' AND target_timestamp_utc <= coalesce(:now::timestamptz, now())
    ORDER BY target_timestamp_utc
    LIMIT :bound
),
unplanned AS (
    SELECT unplanned_since AS since
    FROM users
    WHERE planned_version <> version
    LIMIT :bound
),
unplannable AS (
    SELECT id
    FROM users
    WHERE is_unplannable
    LIMIT :bound
)
SELECT (SELECT count(*) FROM due) AS due,
    coalesce((SELECT coalesce(:now::timestamptz, now()) - min(since) FROM due), '0') AS due_for,
    (SELECT count(*) FROM unplanned) AS unplanned,
    coalesce((SELECT coalesce(:now::timestamptz, now()) - min(since) FROM unplanned), '0') AS unplanned_for,
    (SELECT count(*) FROM unplannable) AS unplannable;

-- name: move_event :maybe
-- Give a planned event another target by hand, if it is still this version and has not begun.
UPDATE scheduled_events
SET moved_from = coalesce(moved_from, target_timestamp_local), target_timestamp_utc = :target_utc,
    target_timestamp_local = :target_local, target_timezone = :timezone,
    planned_at = coalesce(:now::timestamptz, now()), version = version + 1
WHERE id = :event_id AND version = :version AND status = 'PENDING'
RETURNING id, user_id, event_type, status::text, target_timestamp_utc, target_timestamp_local, target_timezone, executed_at,
    failure_reason, retry_count, version, idempotency_key, delivery_payload::text, late_by, delivery_id, occasion_id,
    moved_from, created_at, updated_at;

-- name: move_events :many
-- Give planned events a new target; one that changed since it was read, or has begun, is left alone and not returned.
-- One that was due already keeps the time since when it was: a correction during an outage makes nothing less late.
UPDATE scheduled_events AS e
SET target_timestamp_utc = i.target_utc, target_timestamp_local = i.target_local, target_timezone = i.timezone,
    idempotency_key = i.idempotency_key, delivery_payload = i.payload,
    planned_at = least(greatest(e.target_timestamp_utc, e.planned_at), i.moved_at),
    version = e.version + 1
FROM unnest(
    :event_id::uuid[], :version::integer[], :moved_at::timestamptz[], :target_utc::timestamptz[],
    :target_local::timestamp[], :timezone::text[], :idempotency_key::text[], :payload::text[]::jsonb[]
) AS i(event_id, version, moved_at, target_utc, target_local, timezone, idempotency_key, payload)
WHERE e.id = i.event_id AND e.version = i.version AND e.status = 'PENDING'
RETURNING e.id;

-- name: read_clock :one
-- What time it is.
SELECT coalesce(:now::timestamptz, now()) AS moment;

-- name: recover_events :many
-- Look after events whose lease ran out: never handed over, they are planned again; otherwise their delivery knows.
WITH stuck AS MATERIALIZED (
    SELECT id, user_id, event_type, occasion_id, delivery_id
    FROM scheduled_events
    WHERE status = 'PROCESSING' AND lease_expires_at <= coalesce(:now::timestamptz, now())
    ORDER BY lease_expires_at
    LIMIT 100
    FOR NO KEY UPDATE SKIP LOCKED
),
known AS (
    SELECT e.id, e.delivery_id, d.id IS NOT NULL AS is_known, d.state, d.finished_at, d.reason, d.detail,
        planned.id IS NOT NULL AS is_superseded
    FROM stuck AS e
    LEFT JOIN deliveries AS d ON d.id = e.delivery_id
    LEFT JOIN LATERAL (
        SELECT p.id
        FROM scheduled_events AS p
        WHERE p.user_id = e.user_id AND p.event_type = e.event_type AND p.status = 'PENDING'
            AND p.occasion_id IS NOT DISTINCT FROM e.occasion_id
        LIMIT 1
    ) AS planned ON true
),
judged AS (
    SELECT id, finished_at,
        CASE
            WHEN delivery_id IS NULL AND NOT is_superseded THEN 'PENDING'
            WHEN state = 'sent' THEN 'COMPLETED'
            WHEN is_known AND finished_at IS NULL THEN 'PROCESSING'
            ELSE 'FAILED'
        END::scheduled_event_status AS status,
        CASE
            WHEN delivery_id IS NULL THEN 'superseded: planned again before it was handed over'
            WHEN NOT is_known THEN 'delivery_lost: its delivery is gone'
            WHEN reason = 'recipient_suppressed' THEN explain_suppression(delivery_id)
            ELSE concat_ws(': ', reason, detail)
        END AS failure_reason
    FROM known
)
UPDATE scheduled_events AS e
SET status = j.status,
    claim_id = CASE WHEN j.status = 'PROCESSING' THEN e.claim_id END,
    lease_expires_at = CASE WHEN j.status = 'PROCESSING' THEN coalesce(:now::timestamptz, now()) + :lease::interval END,
    executed_at = CASE WHEN j.status = 'COMPLETED' THEN j.finished_at END,
    failure_reason = CASE WHEN j.status = 'FAILED' THEN j.failure_reason END,
    version = e.version + 1
FROM judged AS j
WHERE e.id = j.id
RETURNING e.id, e.status::text;

-- name: save_basis :exec
-- Remember what the planned targets are computed with from now on.
INSERT INTO schedule_state (basis, recorded_at)
VALUES (:basis, coalesce(:now::timestamptz, now()))
ON CONFLICT (is_only) DO UPDATE SET basis = excluded.basis, recorded_at = excluded.recorded_at;

-- name: update_user :maybe
-- Change a person whose version is still this one.
UPDATE users
SET first_name = :first_name, last_name = :last_name, date_of_birth = :date_of_birth, timezone = :timezone,
    email = :email, webhook_url = :webhook_url, locale = :locale, template = :template
WHERE id = :user_id AND version = :version
RETURNING id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template;
