-- Statements of the benchmark beside Postroom's own. The search path finds the room.

-- name: count_waiting
SELECT count(*) FROM deliveries WHERE state IN ('queued', 'rendered');

-- name: count_sent
SELECT count(*) FROM deliveries WHERE state = 'sent';

-- name: clear
TRUNCATE deliveries CASCADE;

-- name: settle
VACUUM ANALYZE deliveries;

-- name: vacuum
VACUUM ANALYZE;

-- name: measure_size
SELECT sum(pg_total_relation_size(c.oid))::bigint
FROM pg_class AS c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'm');
