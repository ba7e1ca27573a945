-- The statements of stats, in alphabetical order. Figures come from read_counts(), in one statement, so that a
-- concurrent rollup is seen completely or not at all.

-- name: campaign_figures :one
-- All counts of one campaign; see functions/campaign_figures.sql.
SELECT campaign_figures(:campaign_id)::text AS figures;

-- name: count_steps_after :many
-- Settled steps after a place, by minute, up to a limit of steps; each row has the place of the last one.
WITH counted AS (
    SELECT transaction_id, position, at, step
    FROM all_steps
    WHERE (transaction_id, position) > (:transaction_id::bigint::text::xid8, :position::bigint)
        AND transaction_id < (SELECT event_horizon())
    ORDER BY transaction_id, position
    LIMIT :bound
), by_minute AS (
    SELECT date_trunc('minute', at, 'UTC') AS minute, step::text, count(*) AS steps
    FROM counted
    GROUP BY 1, 2
)
SELECT m.minute, m.step, m.steps, last.transaction_id::text::bigint AS transaction_id, last.position
FROM by_minute AS m,
    (SELECT transaction_id, position FROM counted ORDER BY transaction_id DESC, position DESC LIMIT 1) AS last;

-- name: count_steps_before :many
-- Settled steps before a place, or the newest, by minute, up to a limit; each row has the places of the first and last.
WITH counted AS (
    SELECT transaction_id, position, at, step
    FROM all_steps
    WHERE (transaction_id, position)
        < (coalesce(:transaction_id::bigint::text::xid8, (SELECT event_horizon())), coalesce(:position::bigint, 0))
    ORDER BY transaction_id DESC, position DESC
    LIMIT :bound
), by_minute AS (
    SELECT date_trunc('minute', at, 'UTC') AS minute, step::text, count(*) AS steps
    FROM counted
    GROUP BY 1, 2
)
SELECT m.minute, m.step, m.steps, first.transaction_id::text::bigint AS transaction_id, first.position,
    last.transaction_id::text::bigint AS last_transaction_id, last.position AS last_position
FROM by_minute AS m,
    (SELECT transaction_id, position FROM counted ORDER BY transaction_id, position LIMIT 1) AS first,
    (SELECT transaction_id, position FROM counted ORDER BY transaction_id DESC, position DESC LIMIT 1) AS last;

-- name: delete_old_dimension_hours :exec
-- One bounded step of retention for hourly counts by one dimension.
DELETE FROM stats_dimension_hours
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM unnest(enum_range(NULL::stats_dimension)) AS each(dimension)
    CROSS JOIN LATERAL (
        SELECT ctid
        FROM stats_dimension_hours AS h
        WHERE h.dimension = each.dimension AND h.hour < coalesce(:now::timestamptz, now()) - :retention::interval
        ORDER BY h.hour
        LIMIT :batch_limit
    ) AS old
    LIMIT :batch_limit
));

-- name: delete_old_hours :exec
-- One bounded step of retention for hourly counts.
DELETE FROM stats_hourly
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM stats_hourly
    WHERE hour < coalesce(:now::timestamptz, now()) - :retention::interval
    ORDER BY hour
    LIMIT :batch_limit
));

-- name: fold :one
-- Roll up a bounded number of deltas and steps; see functions/fold_stats.sql.
SELECT fold_stats(:batch_limit) AS folded;

-- name: measure :many
-- Figures of a selection, by any of the groupings: ordered by time, or by the number of sent mails. With a dimension,
-- its counts are read; without one, those by campaign, sender and domain together, and the value is the domain. Amounts
-- are added by metric before metrics become columns, so that each row is read once and not compared with every metric.
WITH counted AS (
    SELECT
        CASE
            WHEN 'hour' = ANY(:groups::text[]) THEN hour
            WHEN 'day' = ANY(:groups::text[]) THEN date_trunc('day', hour, 'UTC')
        END AS moment,
        CASE WHEN 'campaign' = ANY(:groups::text[]) THEN campaign_id END AS campaign_id,
        CASE WHEN 'sender' = ANY(:groups::text[]) THEN sender_account_id END AS sender_account_id,
        CASE WHEN coalesce(:dimension, 'domain') = ANY(:groups::text[]) THEN value END AS value,
        metric,
        sum(amount) AS amount
    FROM (
        SELECT hour, campaign_id, sender_account_id, domain AS value, metric, amount
        FROM read_counts() AS c
        WHERE :dimension::text IS NULL
            AND (:campaign_id::bigint IS NULL OR c.campaign_id = :campaign_id)
            AND (:sender_account_id::bigint IS NULL OR c.sender_account_id = :sender_account_id)
            AND (:domain::text IS NULL OR c.domain = :domain)
        UNION ALL
        SELECT hour, NULL, NULL, value, metric, amount
        FROM read_dimension_counts(:dimension::text::stats_dimension) AS c
        WHERE :dimension::text IS NOT NULL AND (:value::text IS NULL OR c.value = :value)
    ) AS read
    WHERE (:begin_hour::timestamptz IS NULL OR hour >= :begin_hour)
        AND (:end_hour::timestamptz IS NULL OR hour < :end_hour)
    GROUP BY 1, 2, 3, 4, 5
)
SELECT moment, campaign_id, sender_account_id, value,
    coalesce(sum(amount) FILTER (WHERE metric = 'accepted'), 0)::bigint AS accepted,
    coalesce(sum(amount) FILTER (WHERE metric = 'sent'), 0)::bigint AS sent,
    coalesce(sum(amount) FILTER (WHERE metric = 'deferred'), 0)::bigint AS deferred,
    coalesce(sum(amount) FILTER (WHERE metric = 'refused'), 0)::bigint AS refused,
    coalesce(sum(amount) FILTER (WHERE metric = 'ambiguous'), 0)::bigint AS ambiguous,
    coalesce(sum(amount) FILTER (WHERE metric = 'bounced'), 0)::bigint AS bounced,
    coalesce(sum(amount) FILTER (WHERE metric = 'returned'), 0)::bigint AS returned,
    coalesce(sum(amount) FILTER (WHERE metric = 'suppressed'), 0)::bigint AS suppressed,
    coalesce(sum(amount) FILTER (WHERE metric = 'cancelled'), 0)::bigint AS cancelled,
    coalesce(sum(amount) FILTER (WHERE metric = 'dead_lettered'), 0)::bigint AS dead_lettered,
    coalesce(sum(amount) FILTER (WHERE metric = 'opened'), 0)::bigint AS opened,
    coalesce(sum(amount) FILTER (WHERE metric = 'opened_unique'), 0)::bigint AS opened_unique,
    coalesce(sum(amount) FILTER (WHERE metric = 'opened_machine'), 0)::bigint AS opened_machine,
    coalesce(sum(amount) FILTER (WHERE metric = 'clicked'), 0)::bigint AS clicked,
    coalesce(sum(amount) FILTER (WHERE metric = 'clicked_unique'), 0)::bigint AS clicked_unique,
    coalesce(sum(amount) FILTER (WHERE metric = 'clicked_machine'), 0)::bigint AS clicked_machine,
    coalesce(sum(amount) FILTER (WHERE metric = 'unsubscribed'), 0)::bigint AS unsubscribed,
    coalesce(sum(amount) FILTER (WHERE metric = 'complained'), 0)::bigint AS complained
FROM counted
GROUP BY 1, 2, 3, 4
ORDER BY moment, sent DESC, campaign_id, sender_account_id, value
LIMIT :page_limit;

-- name: measure_latency :many
-- Seconds from the due time to the acceptance by the other side, by lane: median and 95th percentile of the newest mail.
SELECT d.lane::text, count(*) AS sent,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM newest.at - d.dated_at)::float8) AS p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM newest.at - d.dated_at)::float8) AS p95
FROM (
    SELECT delivery_id, at, step
    FROM delivery_steps
    ORDER BY transaction_id DESC, position DESC
    LIMIT :bound
) AS newest
JOIN deliveries AS d ON d.id = newest.delivery_id
WHERE newest.step = 'sent' AND newest.at >= :since::timestamptz
GROUP BY d.lane;

-- name: rebuild :one
-- Count all steps again; see functions/rebuild_stats.sql.
SELECT rebuild_stats() AS steps;
