-- Statements of the benchmark of rooms.

-- name: count_bulk :one
-- Deliveries that wait; only those that a worker holds are missing.
SELECT count(*) AS count
FROM @room.due_deliveries;

-- name: count_connections :one
-- Client connections of this server, without the one that asks.
SELECT count(*) AS count
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();

-- name: count_transactions :one
-- Transactions of all databases of this server.
SELECT sum(xact_commit + xact_rollback)::bigint AS count
FROM pg_stat_database;

-- name: list_sessions :many
-- The processes of the server for clients, without the one that asks.
SELECT pid
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();

-- name: send :maybe
-- One transactional mail.
SELECT @room.send(ARRAY[:recipient::text], p_subject => 'Hello', p_text => 'A mail of the benchmark of rooms.');

-- name: send_bulk :one
-- Many mails in lane bulk.
SELECT count(@room.send(
    ARRAY['bulk-' || n || '@example.org'], p_subject => 'News', p_text => 'A mail of the benchmark of rooms.',
    p_lane => 'bulk'
)) AS count
FROM generate_series(1, :mails::integer) AS n;
