-- What the dashboard reads beyond the services of others. Nothing here writes.

-- name: count_ended :many
-- What ended since a moment, by hour and state. Only the newest are counted, up to a bound, so that a page stays cheap.
SELECT date_trunc('hour', finished_at, 'UTC') AS hour, state::text, count(*) AS ended
FROM (
    SELECT finished_at, state
    FROM deliveries
    WHERE finished_at >= :since::timestamptz
    ORDER BY finished_at DESC
    LIMIT :bound
) AS newest
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: count_sending :many
-- How many deliveries of each lane are with a worker now, counted up to a bound.
SELECT lane::text, count(*) AS sending
FROM (
    SELECT lane
    FROM deliveries
    WHERE state = 'sending'
    LIMIT :bound
) AS held
GROUP BY lane
ORDER BY lane;

-- name: find_session_key :maybe
-- The key a session was opened with, unless it was revoked since.
SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at
FROM api_keys
WHERE id = :key_id AND revoked_at IS NULL;

-- name: list_workers :many
-- Who works here, the last seen first.
SELECT id, pid, host, started_at, seen_at, asleep::text[]
FROM workers
ORDER BY seen_at DESC, id
LIMIT :page_limit;
