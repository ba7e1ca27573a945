-- Statements of the benchmark beside Postroom's own. The search path finds the room.

-- name: create_application
-- The rights of postroom_sender in docs/examples that postroom.send needs. The source of its mail is the name of the role.
CREATE ROLE bench LOGIN;
GRANT USAGE ON SCHEMA postroom TO bench;
GRANT EXECUTE ON FUNCTION send TO bench;

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
