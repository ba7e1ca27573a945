-- The statements of the schedule, in alphabetical order. Statements that depend on the time take :now; NULL uses the
-- database's clock. A transaction that changes a person's events locks the person's row first, to avoid deadlocks. The
-- claim does not wait for locks: it skips locked rows and finds them again in the next run.

-- name: cancel_event :maybe
-- Cancel a planned event of this version. Its key stays used.
UPDATE scheduled_events
SET status = 'FAILED', failure_reason = :failure_reason, version = version + 1
WHERE id = :event_id AND version = :version AND status = 'PENDING'
RETURNING id, user_id, event_type AS kind, status::text, target_timestamp_utc AS target_utc, target_timestamp_local AS target_local,
    target_timezone AS timezone, executed_at, failure_reason, retry_count, version, idempotency_key,
    delivery_payload::text AS payload, late_by, delivery_id, occasion_id, moved_from, created_at, updated_at;

-- name: claim_due :many
-- Claim due events, oldest first, a hundred at a time, with the current data of the person. Status and limit are
-- literals, so that the planner uses the order of the partial index and expects few rows. Events of people that SQL
-- changed are skipped until the sweep has planned again. That condition is a CASE, because the planner takes a plain
-- comparison for selective and would read and sort all due events. SKIP LOCKED: concurrent schedulers claim different
-- events, and a person who is being changed is claimed after the change.
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
SELECT claimed.id, :claim_id::uuid AS claim_id, claimed.user_id, claimed.event_type AS kind, claimed.occasion_id,
    target_timestamp_utc AS target_utc, target_timestamp_local AS target_local, planned_at, idempotency_key,
    delivery_payload::text AS payload, moved_from, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, claimed.template, o.message, o.rule::text, o.template AS occasion_template,
    coalesce(:now::timestamptz, now()) AS claimed_at
FROM claimed
LEFT JOIN user_occasions AS o ON o.id = claimed.occasion_id
ORDER BY target_timestamp_utc;

-- name: count_coming :many
-- The planned events until a time, by the person's day and zone, counted among the next :row_limit events.
WITH coming AS MATERIALIZED (
    SELECT target_timestamp_local::date AS day, target_timezone AS timezone
    FROM scheduled_events
    WHERE status = 'PENDING' AND target_timestamp_utc < :until::timestamptz
    ORDER BY target_timestamp_utc
    LIMIT :row_limit
)
SELECT day, timezone, count(*) AS events, (SELECT count(*) FROM coming) >= :row_limit::bigint AS is_more
FROM coming
GROUP BY day, timezone
ORDER BY day, timezone;

-- name: delete_events :exec
-- Delete planned events without a future occurrence.
DELETE FROM scheduled_events
WHERE id = ANY(:event_ids::uuid[]) AND status = 'PENDING';

-- name: delete_occasion :maybe
-- Delete an occasion; the foreign key deletes its planned events.
DELETE FROM user_occasions
WHERE id = :occasion_id AND user_id = :user_id
RETURNING id;

-- name: delete_old_events :exec
-- One bounded step of retention: delete events that ended before the retention time. SKIP LOCKED leaves an event that
-- another transaction uses to the next step.
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
-- Delete a person; foreign keys delete their occasions and events.
DELETE FROM users
WHERE id = :user_id
RETURNING id;

-- name: end_occasions :exec
-- Mark occasions without a future occurrence as over.
UPDATE user_occasions
SET is_over = true
WHERE id = ANY(:occasion_ids::uuid[]) AND NOT is_over;

-- name: find_basis :maybe
-- The basis (time zone version and settings) of the planned targets.
SELECT basis
FROM schedule_state;

-- name: find_event :maybe
-- Read an event.
SELECT id, user_id, event_type AS kind, status::text, target_timestamp_utc AS target_utc, target_timestamp_local AS target_local,
    target_timezone AS timezone, executed_at, failure_reason, retry_count, version, idempotency_key,
    delivery_payload::text AS payload, late_by, delivery_id, occasion_id, moved_from, created_at, updated_at
FROM scheduled_events
WHERE id = :event_id;

-- name: find_next_due :one
-- The time of the next planned event, the current time, and whether a due event is unclaimed.
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
-- Read a person.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template
FROM users
WHERE id = :user_id;

-- name: hand_over :many
-- Link claimed events to their deliveries or end them, and insert the next events. Only events that the claim still
-- holds are changed and returned; the claim of the others was lost. An event whose delivery has already ended gets its
-- final status; a FAILED one without a failure reason has a suppressed recipient.
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
    -- Only PROCESSING events have a claim (scheduled_events_claim_while_processing). With a condition on the status the
    -- planner would choose the index of leases, and each batch would read all PROCESSING events.
    WHERE e.id = i.event_id AND e.claim_id = :claim_id::uuid
    RETURNING e.id
),
followed AS (
    INSERT INTO scheduled_events (
        user_id, event_type, occasion_id, target_timestamp_utc, target_timestamp_local, target_timezone,
        idempotency_key, delivery_payload, planned_at, created_at
    )
    -- An event that fell due during an outage counts as planned at its target, so that its lateness is measured from there.
    SELECT i.*, least(i.target_utc, coalesce(:now::timestamptz, now())), coalesce(:now::timestamptz, now())
    FROM unnest(
        :user_id::uuid[], :kind::text[], :occasion_id::uuid[], :target_utc::timestamptz[], :target_local::timestamp[],
        :timezone::text[], :idempotency_key::text[], :payload::text[]::jsonb[]
    ) AS i(user_id, kind, occasion_id, target_utc, target_local, timezone, idempotency_key, payload)
    ON CONFLICT DO NOTHING
)
SELECT id FROM handed;

-- name: has_planned :one
-- True if an occasion has a planned event.
SELECT EXISTS (SELECT FROM scheduled_events WHERE occasion_id = :occasion_id AND status = 'PENDING') AS is_planned;

-- name: insert_events :many
-- Insert planned events, except those whose key or planned event of the occasion exists. Returns their user ids.
INSERT INTO scheduled_events (
    user_id, event_type, occasion_id, target_timestamp_utc, target_timestamp_local, target_timezone,
    idempotency_key, delivery_payload, planned_at, created_at
)
-- An event that is planned after its target counts as planned at its target, so that its lateness is measured from there.
SELECT i.*, least(i.target_utc, coalesce(:now::timestamptz, now())), coalesce(:now::timestamptz, now())
FROM unnest(
    :user_id::uuid[], :kind::text[], :occasion_id::uuid[], :target_utc::timestamptz[], :target_local::timestamp[],
    :timezone::text[], :idempotency_key::text[], :payload::text[]::jsonb[]
) AS i(user_id, kind, occasion_id, target_utc, target_local, timezone, idempotency_key, payload)
ON CONFLICT DO NOTHING
RETURNING user_id;

-- name: insert_occasion :one
-- Insert an occasion of a person.
INSERT INTO user_occasions (user_id, event_type, message, rule, template)
VALUES (:user_id, :kind, :message, :rule::text::jsonb, :template)
RETURNING id, user_id, event_type AS kind, message, rule::text, template, created_at;

-- name: insert_users :many
-- Insert people as planned; the caller plans for them in the same transaction.
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
-- Leave people to the next sweep if the schedulers have another basis than the caller: other times of day or time zone data.
UPDATE users
SET planned_version = -1
WHERE id = ANY(:user_ids::uuid[]) AND EXISTS (SELECT FROM schedule_state WHERE basis <> :basis);

-- name: list_addressed_users :many
-- The people with an address, newest first.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template
FROM users
WHERE lower(email) BETWEEN lower(:email) AND lower(:email) -- and not =, for which all people would be read by their time
ORDER BY lower(email), created_at DESC, id DESC
LIMIT :page_limit;

-- name: list_latest_events :many
-- A page of events, latest target first, after a cursor: found by person, lateness, kind and status or status alone, filtered
-- by the others; see `runtime.page.search_page`. Each status is read in the order of its index; PENDING events have their
-- own.
SELECT id, user_id, event_type AS kind, status::text, target_timestamp_utc AS target_utc, target_timestamp_local AS target_local,
    target_timezone AS timezone, executed_at, failure_reason, retry_count, version, idempotency_key,
    delivery_payload::text AS payload, late_by, delivery_id, occasion_id, moved_from, created_at, updated_at, is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place, status::text = ANY(:statuses::text[])
        AND (:kind::text IS NULL OR event_type = :kind)
        AND (:is_late::boolean IS NULL OR (late_by IS NOT NULL) = :is_late) AS is_match
    FROM (
        (SELECT *
        FROM ( -- OFFSET keeps the planner from reading all events of the period
            SELECT * FROM scheduled_events WHERE user_id = :user_id::uuid OFFSET 0
        ) AS person
        WHERE target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
            AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
            AND (target_timestamp_utc, id) < (coalesce(:last_at::timestamptz, 'infinity'),
                coalesce(:last_id::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        ORDER BY target_timestamp_utc DESC, id DESC
        LIMIT :bound::bigint)
        UNION ALL
        (SELECT *
        FROM scheduled_events
        WHERE :user_id IS NULL AND :is_late AND late_by IS NOT NULL
            AND target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
            AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
            AND (target_timestamp_utc, id) < (coalesce(:last_at::timestamptz, 'infinity'),
                coalesce(:last_id::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        ORDER BY target_timestamp_utc DESC, id DESC
        LIMIT :bound)
        UNION ALL
        (SELECT e.*
        FROM unnest(:statuses::text[]) AS s(status)
        CROSS JOIN LATERAL (
            SELECT *
            FROM scheduled_events
            WHERE event_type = :kind AND status = s.status::scheduled_event_status
                AND target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
                AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
                AND (target_timestamp_utc, id) < (coalesce(:last_at::timestamptz, 'infinity'),
                    coalesce(:last_id::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
            ORDER BY event_type DESC, status DESC, target_timestamp_utc DESC, id DESC
            LIMIT :bound
        ) AS e
        WHERE :user_id IS NULL AND :is_late IS NOT TRUE AND :kind IS NOT NULL
        ORDER BY e.target_timestamp_utc DESC, e.id DESC
        LIMIT :bound)
        UNION ALL
        (SELECT *
        FROM (
            (SELECT *
            FROM scheduled_events
            WHERE status = 'PENDING' AND 'PENDING' = ANY(:statuses::text[])
                AND target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
                AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
                AND (target_timestamp_utc, id) < (coalesce(:last_at::timestamptz, 'infinity'),
                    coalesce(:last_id::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
            ORDER BY target_timestamp_utc DESC, id DESC
            LIMIT :bound)
            UNION ALL
            SELECT e.*
            FROM unnest(:statuses::text[]) AS s(status)
            CROSS JOIN LATERAL (
                SELECT *
                FROM scheduled_events
                WHERE status = s.status::scheduled_event_status AND status <> 'PENDING'
                    AND target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
                    AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
                    AND (target_timestamp_utc, id) < (coalesce(:last_at::timestamptz, 'infinity'),
                        coalesce(:last_id::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
                ORDER BY target_timestamp_utc DESC, id DESC
                LIMIT :bound
            ) AS e
        ) AS e
        WHERE :user_id IS NULL AND :is_late IS NOT TRUE AND :kind IS NULL
        ORDER BY e.target_timestamp_utc DESC, e.id DESC
        LIMIT :bound)
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: list_occasions :many
-- The occasions of some people.
SELECT id, user_id, event_type AS kind, message, rule::text, template, created_at
FROM user_occasions
WHERE user_id = ANY(:user_ids::uuid[])
ORDER BY user_id, id;

-- name: list_soonest_events :many
-- A page of events, soonest target first, after a cursor: found by person, lateness, kind and status or status alone, filtered
-- by the others; see `runtime.page.search_page`. Each status is read in the order of its index; PENDING events have their
-- own.
SELECT id, user_id, event_type AS kind, status::text, target_timestamp_utc AS target_utc, target_timestamp_local AS target_local,
    target_timezone AS timezone, executed_at, failure_reason, retry_count, version, idempotency_key,
    delivery_payload::text AS payload, late_by, delivery_id, occasion_id, moved_from, created_at, updated_at, is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place, status::text = ANY(:statuses::text[])
        AND (:kind::text IS NULL OR event_type = :kind)
        AND (:is_late::boolean IS NULL OR (late_by IS NOT NULL) = :is_late) AS is_match
    FROM (
        (SELECT *
        FROM ( -- OFFSET keeps the planner from reading all events of the period
            SELECT * FROM scheduled_events WHERE user_id = :user_id::uuid OFFSET 0
        ) AS person
        WHERE target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
            AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
            AND (target_timestamp_utc, id) > (coalesce(:last_at::timestamptz, '-infinity'),
                coalesce(:last_id::uuid, '00000000-0000-0000-0000-000000000000'))
        ORDER BY target_timestamp_utc, id
        LIMIT :bound::bigint)
        UNION ALL
        (SELECT *
        FROM scheduled_events
        WHERE :user_id IS NULL AND :is_late AND late_by IS NOT NULL
            AND target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
            AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
            AND (target_timestamp_utc, id) > (coalesce(:last_at::timestamptz, '-infinity'),
                coalesce(:last_id::uuid, '00000000-0000-0000-0000-000000000000'))
        ORDER BY target_timestamp_utc, id
        LIMIT :bound)
        UNION ALL
        (SELECT e.*
        FROM unnest(:statuses::text[]) AS s(status)
        CROSS JOIN LATERAL (
            SELECT *
            FROM scheduled_events
            WHERE event_type = :kind AND status = s.status::scheduled_event_status
                AND target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
                AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
                AND (target_timestamp_utc, id) > (coalesce(:last_at::timestamptz, '-infinity'),
                    coalesce(:last_id::uuid, '00000000-0000-0000-0000-000000000000'))
            ORDER BY event_type, status, target_timestamp_utc, id
            LIMIT :bound
        ) AS e
        WHERE :user_id IS NULL AND :is_late IS NOT TRUE AND :kind IS NOT NULL
        ORDER BY e.target_timestamp_utc, e.id
        LIMIT :bound)
        UNION ALL
        (SELECT *
        FROM (
            (SELECT *
            FROM scheduled_events
            WHERE status = 'PENDING' AND 'PENDING' = ANY(:statuses::text[])
                AND target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
                AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
                AND (target_timestamp_utc, id) > (coalesce(:last_at::timestamptz, '-infinity'),
                    coalesce(:last_id::uuid, '00000000-0000-0000-0000-000000000000'))
            ORDER BY target_timestamp_utc, id
            LIMIT :bound)
            UNION ALL
            SELECT e.*
            FROM unnest(:statuses::text[]) AS s(status)
            CROSS JOIN LATERAL (
                SELECT *
                FROM scheduled_events
                WHERE status = s.status::scheduled_event_status AND status <> 'PENDING'
                    AND target_timestamp_utc >= coalesce(:due_from::timestamptz, '-infinity')
                    AND target_timestamp_utc < coalesce(:due_before::timestamptz, 'infinity')
                    AND (target_timestamp_utc, id) > (coalesce(:last_at::timestamptz, '-infinity'),
                        coalesce(:last_id::uuid, '00000000-0000-0000-0000-000000000000'))
                ORDER BY target_timestamp_utc, id
                LIMIT :bound
            ) AS e
        ) AS e
        WHERE :user_id IS NULL AND :is_late IS NOT TRUE AND :kind IS NULL
        ORDER BY e.target_timestamp_utc, e.id
        LIMIT :bound)
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: list_user_events :many
-- The events that planning needs: planned ones, and begun ones of the last 800 days, whose keys are used.
SELECT id, user_id, event_type AS kind, occasion_id, status::text, target_timestamp_utc AS target_utc,
    target_timestamp_local AS target_local, target_timezone AS timezone, version, idempotency_key,
    delivery_payload::text AS payload, moved_from,
    status = 'PROCESSING' AND delivery_id IS NULL AS is_claimed_only
FROM scheduled_events
WHERE user_id = ANY(:user_ids::uuid[])
    AND (status = 'PENDING' OR target_timestamp_utc > coalesce(:now::timestamptz, now()) - interval '800 days');

-- name: list_users :many
-- A page of people, newest first.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template
FROM users
WHERE (created_at, id) < (coalesce(:before_at::timestamptz, 'infinity'),
    coalesce(:before_id::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY created_at DESC, id DESC
LIMIT :page_limit;

-- name: lock_unplanned_users :many
-- Lock people that SQL added or changed since they were last planned for. SKIP LOCKED lets several schedulers sweep at once.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template, unplanned_since, planned_version
FROM users
WHERE planned_version <> version
ORDER BY id
LIMIT :batch_limit
FOR NO KEY UPDATE SKIP LOCKED;

-- name: lock_unscheduled_users :many
-- Check people in order of id, a thousand at a time, and lock those without a planned event for the birthday or an open
-- occasion; `last_id` is the last id checked. The limit is a literal and the lookups are LATERAL, otherwise the planner
-- would read all events.
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
    FOR NO KEY UPDATE SKIP LOCKED -- another transaction is planning for those; the next audit checks them
)
SELECT held.*, looked_to.last_id
FROM (SELECT id AS last_id FROM looked ORDER BY id DESC LIMIT 1) AS looked_to
LEFT JOIN held ON true;

-- name: lock_user :maybe
-- Lock a person: no other transaction plans, claims or changes them until this one ends.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template, CASE WHEN planned_version <> version THEN unplanned_since END AS unplanned_since, planned_version
FROM users
WHERE id = :user_id
FOR UPDATE;

-- name: lock_users :many
-- Lock the next people that are planned for, in order of id: a change committed meanwhile would be marked as planned
-- without having been read. The sweep handles the others: it plans as of the time of the SQL change, while planning as
-- of now would lose events due since. The condition is a CASE, because the planner takes a plain comparison for
-- selective and would read and sort all people in each step.
SELECT id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template
FROM users
WHERE id > coalesce(:after_id::uuid, '00000000-0000-0000-0000-000000000000')
    AND CASE WHEN planned_version = version THEN true ELSE false END
ORDER BY id
LIMIT :batch_limit
FOR NO KEY UPDATE;

-- name: mark_planned :exec
-- Mark people as planned at their current version, and flag those with an event that could not be planned.
UPDATE users
SET planned_version = version, unplanned_since = NULL, is_unplannable = id = ANY(:unplannable_ids::uuid[])
WHERE id = ANY(:user_ids::uuid[])
    AND (planned_version <> version OR is_unplannable <> (id = ANY(:unplannable_ids::uuid[])));

-- name: measure_schedule :one
-- Overdue events and unplanned people, each counted up to a bound, with the age of the oldest; and unplannable people.
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
-- Move a planned event of this version to the target that an operator chose.
UPDATE scheduled_events
SET moved_from = coalesce(moved_from, target_timestamp_local), target_timestamp_utc = :target_utc,
    target_timestamp_local = :target_local, target_timezone = :timezone,
    planned_at = coalesce(:now::timestamptz, now()), version = version + 1
WHERE id = :event_id AND version = :version AND status = 'PENDING'
RETURNING id, user_id, event_type AS kind, status::text, target_timestamp_utc AS target_utc, target_timestamp_local AS target_local,
    target_timezone AS timezone, executed_at, failure_reason, retry_count, version, idempotency_key,
    delivery_payload::text AS payload, late_by, delivery_id, occasion_id, moved_from, created_at, updated_at;

-- name: move_events :many
-- Give planned events a new target. An event that has changed since it was read, or has begun, is skipped and not
-- returned. An overdue event counts as planned when it fell due, so that a correction during an outage does not reset
-- its lateness.
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
-- The current time.
SELECT coalesce(:now::timestamptz, now()) AS moment;

-- name: recover_events :many
-- Recover events whose lease has expired: without a delivery they become PENDING again, otherwise they follow its
-- state. SKIP LOCKED leaves events to the scheduler that is handing them over late, and to a concurrent recovery.
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
            WHEN delivery_id IS NULL THEN 'superseded: another event was planned before this one was handed over'
            WHEN NOT is_known THEN 'delivery_lost: its delivery no longer exists'
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
-- Store the basis of the planned targets.
INSERT INTO schedule_state (basis, recorded_at)
VALUES (:basis, coalesce(:now::timestamptz, now()))
ON CONFLICT (is_only) DO UPDATE SET basis = excluded.basis, recorded_at = excluded.recorded_at;

-- name: update_user :maybe
-- Change a person of this version.
UPDATE users
SET first_name = :first_name, last_name = :last_name, date_of_birth = :date_of_birth, timezone = :timezone,
    email = :email, webhook_url = :webhook_url, locale = :locale, template = :template
WHERE id = :user_id AND version = :version
RETURNING id, version, created_at, updated_at, first_name, last_name, date_of_birth, timezone, email, webhook_url,
    locale, template;
