-- Statements of the benchmark beside Postroom's own. The search path finds the room.

-- name: count_waiting
SELECT count(*) FROM deliveries WHERE state IN ('queued', 'rendered');

-- name: count_sent
SELECT count(*) FROM deliveries WHERE state = 'sent';

-- name: clear
-- No foreign key leads to deliveries, so that each table is named. With orphans in the queue, `wire` after `accept-http` gave
-- 15 ms instead of 2.
TRUNCATE deliveries, due_deliveries, delivery_payloads, other_recipients, unsent_deliveries, claims, dead_letters, attempts,
    delivery_steps;

-- name: settle
VACUUM ANALYZE deliveries;

-- name: vacuum
VACUUM ANALYZE;

-- name: measure_size
SELECT sum(pg_total_relation_size(c.oid))::bigint
FROM pg_class AS c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'm');
