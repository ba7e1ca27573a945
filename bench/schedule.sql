-- People and events for bench/schedule.py, made by the database itself: a million through the front door takes minutes.

-- name: fill_future
WITH people AS (
    INSERT INTO users (first_name, last_name, date_of_birth, timezone, planned_version)
    SELECT 'Ada', 'Lovelace', date '1990-06-01', 'UTC', 1
    FROM generate_series(1, $1::integer)
    RETURNING id
)
INSERT INTO scheduled_events (
    user_id, target_timestamp_utc, target_timestamp_local, target_timezone, idempotency_key, delivery_payload
)
SELECT id, now() + interval '1 day' + n * interval '30 seconds', now()::timestamp, 'UTC', 'birthday:' || id || ':2030',
    '{"message": "Hey, Ada Lovelace it''s your birthday"}'
FROM (SELECT id, row_number() OVER () AS n FROM people) AS numbered;

-- name: fill_due
WITH people AS (
    INSERT INTO users (first_name, last_name, date_of_birth, timezone, planned_version)
    SELECT 'Ada', 'Lovelace', date '1990-06-01', 'UTC', 1
    FROM generate_series(1, $1::integer)
    RETURNING id
)
INSERT INTO scheduled_events (
    user_id, target_timestamp_utc, target_timestamp_local, target_timezone, idempotency_key, delivery_payload
)
SELECT id, $2::timestamptz + n * $3::interval, $2::timestamptz::timestamp, 'UTC', 'birthday:' || id || ':2026',
    '{"message": "Hey, Ada Lovelace it''s your birthday"}'
FROM (SELECT id, row_number() OVER () AS n FROM people) AS numbered;

-- name: list_handovers
SELECT e.target_timestamp_utc AS target, d.created_at AS handed
FROM scheduled_events AS e
JOIN deliveries AS d ON d.id = e.delivery_id
WHERE e.target_timestamp_utc > $1;

-- name: settle
VACUUM ANALYZE users, scheduled_events;
