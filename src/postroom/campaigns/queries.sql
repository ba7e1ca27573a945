-- The statements of campaigns, in alphabetical order. Statements that depend on the time take :now; NULL selects the
-- database clock.
--  A pause holds mail by moving next_attempt_at a thousand years ahead, and a resume moves it back. Retries keep their
-- order, and the queue needs no further state. A time after the year 2900 means held.

-- name: cancel_campaign :maybe
-- Cancel a campaign; recipients that were not queued yet get no mail.
UPDATE campaigns
SET status = 'cancelled', finished_at = coalesce(:now::timestamptz, now()), paused_at = NULL,
    updated_at = coalesce(:now::timestamptz, now()), cancelled_count = total_count - fed_count - suppressed_count
WHERE id = :campaign_id AND status IN ('active', 'paused')
RETURNING id;

-- name: cancel_mail :one
-- One bounded step of cancelling a campaign's waiting mail; mail that is being sent is not touched. SKIP LOCKED: a worker
-- is claiming the others, and the next step finds those that it released.
SELECT count(*) AS moved
FROM cancel_deliveries(
    ARRAY(
        SELECT d.id
        FROM due_deliveries AS w
        JOIN deliveries AS d ON d.id = w.id
        WHERE w.campaign_id = :campaign_id
        ORDER BY w.due_at
        LIMIT :batch_limit
        FOR UPDATE OF d SKIP LOCKED
    ), 'campaign_cancelled', coalesce(:now::timestamptz, now()));

-- name: complete_campaign :maybe
-- Complete a campaign whose recipients are all queued, and whose mail is neither waiting nor in flight. The caller has locked
-- the campaign in a statement before: a subquery of the statement that waits for a lock still reads the table as it was
-- before the wait, without the recipients of the upload for which it waited.
UPDATE campaigns AS c
SET status = 'completed', finished_at = coalesce(:now::timestamptz, now()),
    updated_at = coalesce(:now::timestamptz, now())
WHERE c.id = :campaign_id AND c.status = 'active'
    AND NOT EXISTS (SELECT FROM campaign_zones AS z WHERE z.campaign_id = c.id AND z.fed_through < z.last_id)
    AND NOT EXISTS (SELECT FROM due_deliveries AS w WHERE w.campaign_id = c.id)
    AND NOT EXISTS (
        SELECT FROM claims AS l
        JOIN deliveries AS d ON d.id = ANY(l.delivery_ids) AND d.claim_id = l.id
        WHERE d.campaign_id = c.id)
RETURNING c.id;

-- name: count_refused :exec
-- Count the rejected lines of an upload.
UPDATE campaigns
SET invalid_count = invalid_count + :invalid
WHERE id = :campaign_id;

-- name: delete_campaign :maybe
-- Delete a draft.
DELETE FROM campaigns
WHERE id = :campaign_id AND status = 'draft'
RETURNING id;

-- name: delete_recipients :exec
-- Delete the recipients of a draft.
DELETE FROM campaign_recipients
WHERE campaign_id = :campaign_id;

-- name: feed_campaign :maybe
-- Fill the queue of one campaign; see functions/feed_campaign.sql. No row: another feeder holds the lock, or the
-- campaign is not active.
SELECT fed, suppressed, waiting
FROM feed_campaign(:campaign_id, :target, coalesce(:now::timestamptz, now()));

-- name: find_campaign :maybe
-- One campaign with all its columns.
SELECT id, status::text, is_tracked, total_count, fed_count, suppressed_count, cancelled_count, duplicate_count,
    invalid_count, created_at, updated_at, start_at, local_time, started_at, paused_at, finished_at, time_zone, name,
    from_email, from_name, reply_to_email, reply_to_name, subject, text_body, html_body
FROM campaigns
WHERE id = :campaign_id;

-- name: find_recipient :maybe
-- One recipient of a campaign: by address, or the first. Each branch has its index.
SELECT id, state::text, delivery_id, time_zone, email, name, custom_data::text
FROM campaign_recipients
WHERE campaign_id = :campaign_id AND lower(email) COLLATE "C" = lower(:email::text)
UNION ALL
(
    SELECT id, state::text, delivery_id, time_zone, email, name, custom_data::text
    FROM campaign_recipients
    WHERE campaign_id = :campaign_id AND :email::text IS NULL
    ORDER BY campaign_id, time_zone, id
    LIMIT 1
);

-- name: forget_recipients :exec
-- One bounded step of retention: delete the recipients of campaigns that ended long ago. The campaign keeps its counts.
DELETE FROM campaign_recipients
WHERE ctid = ANY (ARRAY(
    SELECT r.ctid
    FROM campaigns AS c
    CROSS JOIN LATERAL (
        SELECT ctid FROM campaign_recipients WHERE campaign_id = c.id LIMIT :batch_limit
    ) AS r
    WHERE c.finished_at < coalesce(:now::timestamptz, now()) - :retention::interval
    LIMIT :batch_limit
));

-- name: hold_mail :one
-- One bounded step of holding a paused campaign's waiting mail. SKIP LOCKED: a worker is claiming the others.
SELECT count(*) AS moved
FROM shift_deliveries(
    ARRAY(
        SELECT d.id
        FROM due_deliveries AS w
        JOIN deliveries AS d ON d.id = w.id
        WHERE w.campaign_id = :campaign_id AND w.due_at < '2900-01-01 00:00Z'
        ORDER BY w.due_at
        LIMIT :batch_limit
        FOR UPDATE OF d SKIP LOCKED
    ), interval '1000 years');

-- name: insert_campaign :one
-- Store a draft.
INSERT INTO campaigns (
    name, from_email, from_name, reply_to_email, reply_to_name, subject, text_body, html_body, is_tracked, start_at,
    local_time, time_zone, created_at, updated_at
)
VALUES (
    :name, :from_email, :from_name, :reply_to_email, :reply_to_name, :subject, :text_body, :html_body, :is_tracked,
    :start_at, :local_time, :time_zone, coalesce(:now::timestamptz, now()), coalesce(:now::timestamptz, now())
)
RETURNING id;

-- name: insert_recipients :one
-- Store a batch of an upload: new recipients, suppressed ones among them, and their zones, fields and counters. The
-- caller holds the campaign's row lock, so ids become visible in their order and no feeder skips one.
WITH line AS MATERIALIZED (
    SELECT l.*, stopped.until IS NOT DISTINCT FROM 'infinity' AS is_suppressed
    FROM unnest(:email::text[], :name::text[], :time_zone::text[], :custom_data::text[])
        AS l(email, name, time_zone, custom_data)
    CROSS JOIN LATERAL suppressed_until(l.email, 'bulk', coalesce(:now::timestamptz, now())) AS stopped
),
added AS (
    INSERT INTO campaign_recipients (campaign_id, state, time_zone, email, name, custom_data)
    SELECT :campaign_id::bigint, CASE WHEN is_suppressed THEN 'suppressed' ELSE 'waiting' END::campaign_recipient_state,
        time_zone, email, name, custom_data::jsonb
    FROM line
    ON CONFLICT DO NOTHING
    RETURNING id, state, time_zone, CASE WHEN name IS NULL THEN custom_data
        ELSE custom_data || jsonb_build_object('name', name) END AS fields
),
zoned AS (
    INSERT INTO campaign_zones AS z (campaign_id, time_zone, last_id, due_at)
    SELECT :campaign_id, time_zone, max(id),
        (SELECT due.at FROM unnest(:zone::text[], :due_at::timestamptz[]) AS due(zone, at) WHERE due.zone = added.time_zone)
    FROM added
    GROUP BY time_zone
    ON CONFLICT (campaign_id, time_zone) DO UPDATE SET last_id = greatest(z.last_id, excluded.last_id)
),
fielded AS (
    INSERT INTO campaign_fields AS f (campaign_id, name, filled)
    SELECT :campaign_id, field.key, count(*) FILTER (WHERE field.value NOT IN ('""', 'null'))
    FROM added, jsonb_each(fields) AS field
    GROUP BY field.key
    ORDER BY field.key
    ON CONFLICT (campaign_id, name) DO UPDATE SET filled = f.filled + excluded.filled
),
found AS (
    SELECT count(*) AS stored, count(*) FILTER (WHERE state = 'suppressed') AS suppressed
    FROM added
),
counted AS (
    UPDATE campaigns
    SET total_count = total_count + stored, suppressed_count = suppressed_count + suppressed,
        duplicate_count = duplicate_count + cardinality(:email::text[]) - stored
    FROM found
    WHERE campaigns.id = :campaign_id
)
SELECT stored, suppressed
FROM found;

-- name: list_campaigns :many
-- Campaigns newest first, below a cursor: found by status or among all, filtered by any part of the name; see
-- `runtime.page.search_page`.
SELECT id, status::text, is_tracked, total_count, fed_count, suppressed_count, cancelled_count, duplicate_count,
    invalid_count, created_at, updated_at, start_at, local_time, started_at, paused_at, finished_at, time_zone, name,
    from_email, from_name, reply_to_email, reply_to_name, subject, NULL AS text_body, NULL AS html_body,
    is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place, :name::text IS NULL OR strpos(lower(name), lower(:name)) > 0 AS is_match
    FROM (
        (SELECT * FROM campaigns
        WHERE status BETWEEN :status::text::campaign_status AND :status::campaign_status
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY status DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM campaigns
        WHERE :status IS NULL AND id < coalesce(:before_id, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound)
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: list_domains :many
-- The domains with the most bounced or failed mail of a campaign, and the mail that was sent to them. The failures have an
-- index of their own: a campaign to a million people has a row per domain and hour for its sent mail.
WITH failing AS MATERIALIZED (
    SELECT domain,
        coalesce(sum(amount) FILTER (WHERE metric = 'bounced'), 0)::bigint AS bounced,
        coalesce(sum(amount) FILTER (WHERE metric = 'returned'), 0)::bigint AS returned,
        coalesce(sum(amount) FILTER (WHERE metric IN ('refused', 'dead_lettered')), 0)::bigint AS ended
    FROM read_counts()
    WHERE campaign_id = :campaign_id AND campaign_id <> 0 -- the predicate of the index, with the metrics
        AND metric IN ('bounced', 'returned', 'refused', 'dead_lettered')
    GROUP BY domain
    ORDER BY bounced DESC, ended DESC, domain
    LIMIT :page_limit
),
sent AS (
    SELECT domain, sum(amount)::bigint AS sent
    FROM read_counts()
    WHERE campaign_id = :campaign_id AND metric = 'sent'
        AND domain = ANY(ARRAY(SELECT domain FROM failing))
        AND hour >= (SELECT date_trunc('hour', started_at, 'UTC') FROM campaigns WHERE id = :campaign_id)
    GROUP BY domain
)
SELECT f.domain, coalesce(s.sent, 0) AS sent, f.bounced, greatest(f.ended - f.bounced + f.returned, 0) AS failed
FROM failing AS f
LEFT JOIN sent AS s USING (domain)
ORDER BY f.bounced DESC, f.ended DESC, f.domain;

-- name: list_fields :many
-- The merge fields of a campaign's recipients, with the number of recipients that have a value.
SELECT name, filled
FROM campaign_fields
WHERE campaign_id = :campaign_id
ORDER BY name;

-- name: list_hours :many
-- The amounts by hour.
SELECT hour, metric, sum(amount)::bigint AS amount
FROM read_dimension_counts('campaign')
WHERE value = :campaign_id::bigint::text
GROUP BY hour, metric
ORDER BY hour, metric;

-- name: list_letters :many
-- The letters of campaigns, for workers that render their mail.
SELECT id, is_tracked, from_email, from_name, reply_to_email, reply_to_name, subject, text_body, html_body
FROM campaigns
WHERE id = ANY(:campaign_ids::bigint[]);

-- name: list_mail :many
-- The recipients and merge fields of deliveries by a campaign, for readers of their content.
SELECT d.id, d.campaign_id, d.recipient_email AS email, d.recipient_name AS name, p.variables::text
FROM deliveries AS d
JOIN delivery_payloads AS p ON p.delivery_id = d.id
WHERE d.id = ANY(:delivery_ids::bigint[]) AND d.campaign_id IS NOT NULL AND p.subject IS NULL;

-- name: list_people :many
-- Recipients of a campaign and the result of their mail, by zone and place in the list, after a cursor. Fewer than :bound
-- recipients are searched; the one after them is a row that is not chosen, so that the next page continues there.
WITH scanned AS MATERIALIZED (
    SELECT r.id, r.delivery_id, r.time_zone, r.email, r.name, e.first_human_open_at AS opened_at,
        e.first_human_click_at AS clicked_at,
        (SELECT min(b.reported_at) FROM bounces AS b WHERE b.delivery_id = r.delivery_id AND b.kind = 'bounce') AS bounced_at,
        CASE
            WHEN r.state = 'waiting' AND c.status = 'cancelled' THEN 'cancelled'
            WHEN r.state = 'fed' THEN coalesce(nullif(d.state::text, 'rendered'), CASE WHEN d.id IS NULL THEN 'fed' ELSE 'queued' END)
            ELSE r.state::text
        END AS result,
        CASE WHEN d.state <> 'sent' THEN coalesce(d.recipient_detail, d.detail, d.reason) END AS refusal
    FROM campaigns AS c
    JOIN campaign_recipients AS r ON r.campaign_id = c.id
    LEFT JOIN deliveries AS d ON d.id = r.delivery_id
    LEFT JOIN engagements AS e ON e.delivery_id = r.delivery_id
    WHERE c.id = :campaign_id
        AND (r.time_zone, r.id) > (coalesce(:after_zone::text, '') COLLATE "C", coalesce(:after_id::bigint, 0))
    ORDER BY r.time_zone, r.id
    LIMIT :bound
), last AS (
    SELECT id FROM scanned ORDER BY time_zone DESC, id DESC LIMIT (SELECT (count(*) = :bound)::integer FROM scanned)
), chosen AS (
    SELECT *, id NOT IN (SELECT id FROM last) AND (
        :result::text IS NULL OR result = :result OR (:result = 'opened' AND opened_at IS NOT NULL)
        OR (:result = 'clicked' AND clicked_at IS NOT NULL) OR (:result = 'bounced' AND bounced_at IS NOT NULL)) AS is_chosen
    FROM scanned
)
SELECT id, delivery_id, time_zone, email, name, result, opened_at, clicked_at, bounced_at, is_chosen,
    coalesce((
        SELECT b.text FROM bounces AS b
        WHERE b.delivery_id = chosen.delivery_id AND b.kind = 'bounce'
        ORDER BY b.reported_at, b.id
        LIMIT 1
    ), refusal) AS reason
FROM chosen
WHERE is_chosen OR id IN (SELECT id FROM last)
ORDER BY time_zone, id
LIMIT :page_limit;

-- name: list_recipients :many
-- Recipients of a campaign by zone and place in the list, after a cursor; see `runtime.page.search_page`. Waiting
-- recipients come after the zone's feeding position.
SELECT id, state, delivery_id, time_zone, email, name, custom_data::text, is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place, (:state::text IS NULL OR state = :state)
        AND (:custom_data::text IS NULL OR custom_data @> :custom_data::jsonb) AS is_match
    FROM (
        SELECT r.id, CASE WHEN r.state = 'waiting' AND c.status = 'cancelled' THEN 'cancelled' ELSE r.state::text END AS state,
            r.delivery_id, r.time_zone, r.email, r.name, r.custom_data
        FROM campaigns AS c
        JOIN campaign_zones AS z ON z.campaign_id = c.id
        CROSS JOIN LATERAL (
            SELECT *
            FROM campaign_recipients AS r
            WHERE r.campaign_id = z.campaign_id AND r.time_zone = z.time_zone
                AND r.id > greatest(CASE WHEN :state IN ('waiting', 'cancelled') THEN z.fed_through ELSE 0 END,
                    CASE WHEN z.time_zone = :after_zone::text COLLATE "C" THEN :after_id::bigint ELSE 0 END)
            ORDER BY r.id
            LIMIT :bound::bigint
        ) AS r
        WHERE c.id = :campaign_id AND z.time_zone >= coalesce(:after_zone, '') COLLATE "C"
        ORDER BY z.time_zone, r.id
        LIMIT :bound
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: list_unfinished :many
-- Campaigns that need a feeder; see functions/unfinished_campaigns.sql. `may_be_complete` is a look without a lock.
SELECT id, status::text, coalesce(due_at <= coalesce(:now::timestamptz, now()), false) AS has_due, has_stray_mail,
    status = 'active' AND NOT has_more AND NOT has_mail AS may_be_complete
FROM unfinished_campaigns()
ORDER BY id;

-- name: list_zones :many
-- The time zones of a campaign's recipients, and when each is due.
SELECT time_zone, due_at
FROM campaign_zones
WHERE campaign_id = :campaign_id
ORDER BY time_zone;

-- name: lock_campaign :maybe
-- Lock one campaign until the transaction ends, against feeders, uploads and operators.
SELECT id, status::text, is_tracked, total_count, fed_count, suppressed_count, cancelled_count, duplicate_count,
    invalid_count, created_at, updated_at, start_at, local_time, started_at, paused_at, finished_at, time_zone, name,
    from_email, from_name, reply_to_email, reply_to_name, subject, text_body, html_body
FROM campaigns
WHERE id = :campaign_id
FOR NO KEY UPDATE;

-- name: measure_campaigns :many
-- The results of these campaigns' mail, from the running statistics.
SELECT value::bigint AS campaign_id, metric, sum(amount)::bigint AS amount
FROM read_dimension_counts('campaign')
WHERE value = ANY(:campaign_ids::bigint[]::text[])
GROUP BY value, metric;

-- name: pause_campaign :maybe
-- Pause a campaign; feeders skip it.
UPDATE campaigns
SET status = 'paused', paused_at = coalesce(:now::timestamptz, now()), updated_at = coalesce(:now::timestamptz, now())
WHERE id = :campaign_id AND status = 'active'
RETURNING id;

-- name: read_clock :one
-- The time that the statements of this transaction use.
SELECT coalesce(:now::timestamptz, now()) AS moment;

-- name: release_mail :one
-- One bounded step of releasing the mail that a pause held. SKIP LOCKED: mail that another transaction is cancelling is
-- left to it, and two releases cannot wait for each other.
SELECT count(*) AS moved
FROM shift_deliveries(
    ARRAY(
        SELECT d.id
        FROM due_deliveries AS w
        JOIN deliveries AS d ON d.id = w.id
        WHERE w.campaign_id = :campaign_id AND w.due_at >= '2900-01-01 00:00Z'
        ORDER BY w.due_at
        LIMIT :batch_limit
        FOR UPDATE OF d SKIP LOCKED
    ), interval '-1000 years');

-- name: reopen_campaign :maybe
-- Return a campaign to a draft, if no mail of it was queued yet.
UPDATE campaigns
SET status = 'draft', started_at = NULL, paused_at = NULL, updated_at = coalesce(:now::timestamptz, now())
WHERE id = :campaign_id AND status IN ('active', 'paused') AND fed_count = 0
RETURNING id;

-- name: resume_campaign :maybe
-- Resume a paused campaign.
UPDATE campaigns
SET status = 'active', paused_at = NULL, updated_at = coalesce(:now::timestamptz, now())
WHERE id = :campaign_id AND status = 'paused'
RETURNING id;

-- name: start_campaign :maybe
-- Start a draft. Its letter can no longer be changed.
UPDATE campaigns
SET status = 'active', started_at = coalesce(:now::timestamptz, now()), updated_at = coalesce(:now::timestamptz, now())
WHERE id = :campaign_id AND status = 'draft'
RETURNING id;

-- name: start_zones :exec
-- Set the due time of each zone.
UPDATE campaign_zones AS z
SET due_at = i.due_at
FROM unnest(:time_zone::text[], :due_at::timestamptz[]) AS i(time_zone, due_at)
WHERE z.campaign_id = :campaign_id AND z.time_zone = i.time_zone;

-- name: update_campaign :maybe
-- Change a draft.
UPDATE campaigns
SET name = :name, from_email = :from_email, from_name = :from_name, reply_to_email = :reply_to_email,
    reply_to_name = :reply_to_name, subject = :subject, text_body = :text_body, html_body = :html_body,
    is_tracked = :is_tracked, start_at = :start_at, local_time = :local_time, time_zone = :time_zone,
    updated_at = coalesce(:now::timestamptz, now())
WHERE id = :campaign_id AND status = 'draft'
RETURNING id;

-- name: wake_feeders :exec
-- Notify feeders of new work.
SELECT pg_notify(current_schema() || '_campaigns', '');
