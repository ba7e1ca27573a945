-- Statements of the demo: reads that no service offers.

-- name: count_repeated :one
-- How many of these deliveries the inbox has captured more than once.
SELECT count(*) AS repeated
FROM (
    SELECT FROM inbox_messages WHERE delivery_id = ANY(:delivery_ids::bigint[]) GROUP BY delivery_id HAVING count(*) > 1
) AS several;

-- name: count_started :one
-- How many deliveries a worker process has claimed and begun to send, and in how many lanes.
SELECT coalesce(sum(started_through), 0)::bigint AS started, count(DISTINCT lane) AS lanes
FROM claims
JOIN workers ON workers.id = worker_id
WHERE pid = :pid AND host = :host AND started_through > 0;

-- name: find_ambiguous :maybe
-- The newest of these deliveries with an ambiguous attempt: it was sent again, or is held.
SELECT delivery_id
FROM attempts
WHERE delivery_id = ANY(:delivery_ids::bigint[]) AND outcome = 'ambiguous'
ORDER BY delivery_id DESC
LIMIT 1;

-- name: has_worker :one
-- Whether a process works in this room.
SELECT EXISTS (SELECT FROM workers WHERE pid = :pid AND host = :host) AS is_there;

-- name: list_outcomes :many
-- These deliveries by lane and state, and how many of them have an ambiguous attempt in the ledger.
SELECT lane::text, state::text, count(*) AS deliveries,
    count(*) FILTER (
        WHERE EXISTS (SELECT FROM attempts WHERE delivery_id = deliveries.id AND outcome = 'ambiguous')
    ) AS ambiguous
FROM deliveries
WHERE id = ANY(:delivery_ids::bigint[])
GROUP BY lane, state
ORDER BY lane, state;

-- name: list_recent_transports :many
-- The transports of the last day's newest attempts: only `capture` and `webhook` in a room for development.
SELECT DISTINCT transport
FROM (
    SELECT transport
    FROM attempts
    WHERE finished_at > now() - interval '1 day' AND transport IS NOT NULL
    LIMIT 10000
) AS recent
ORDER BY transport;

-- name: list_sent_mail :many
-- The mail of a campaign that was sent, with its recipient.
SELECT deliveries.id AS delivery_id, email
FROM deliveries
JOIN delivery_recipients ON delivery_id = deliveries.id
WHERE campaign_id = :campaign_id AND state = 'sent'
ORDER BY deliveries.id;
