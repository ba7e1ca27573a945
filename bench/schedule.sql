-- People and events for bench/schedule.py, made by the database itself: a million through the front door takes minutes.

-- name: begin_fill
SET LOCAL session_replication_role = 'replica';

-- name: empty
TRUNCATE users CASCADE;

-- name: fill_people
-- Ids ascend and are spread over all there are, as random ones would be: people who come later fall between them.
INSERT INTO users (id, first_name, last_name, date_of_birth, timezone, planned_version)
SELECT concat(lpad(to_hex(n * 4294967296 / $1::bigint), 8, '0'), '-0000-4000-8000-', lpad(to_hex(n), 12, '0'))::uuid,
    'Ada', 'Lovelace', date '1990-06-01', 'UTC', 1
FROM generate_series(0, $1::bigint - 1) AS n;

-- name: fill_future
INSERT INTO scheduled_events (
    id, user_id, target_timestamp_utc, target_timestamp_local, target_timezone, idempotency_key, delivery_payload
)
SELECT id, id, now() + interval '1 day' + n * interval '3 seconds', now()::timestamp, 'UTC',
    'birthday:' || id || ':2030', '{"message": "Hey, Ada Lovelace it''s your birthday"}'
FROM generate_series(0, $1::bigint - 1) AS n
CROSS JOIN LATERAL (
    SELECT concat(
        lpad(to_hex(n * 4294967296 / $1::bigint), 8, '0'), '-0000-4000-8000-', lpad(to_hex(n), 12, '0')
    )::uuid AS id
) AS person;

-- name: rest
-- No vacuum in the middle of a measurement, by chance of one room and not of another.
ALTER TABLE users SET (autovacuum_enabled = false);
ALTER TABLE scheduled_events SET (autovacuum_enabled = false);
ALTER TABLE deliveries SET (autovacuum_enabled = false);

-- name: analyze
ANALYZE users, scheduled_events;

-- name: checkpoint
CHECKPOINT;

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
