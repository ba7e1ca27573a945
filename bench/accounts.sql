-- Statements of the benchmark of accounts. The search path finds the room.

-- name: sign_up
INSERT INTO accounts (email, login)
VALUES ($1, $2);

-- name: sign_up_many
INSERT INTO accounts (email, login)
SELECT $1 || n || '@example.org', $1 || n
FROM generate_series(1, $2::integer) AS n;

-- name: disable_triggers
ALTER TABLE accounts DISABLE TRIGGER USER;

-- name: enable_triggers
ALTER TABLE accounts ENABLE TRIGGER USER;

-- name: count_accepted
SELECT count(*) FROM deliveries WHERE source = 'accounts';

-- name: count_busy
SELECT count(*) FROM busy_jobs WHERE until > clock_timestamp();

-- name: clear
TRUNCATE accounts, deliveries CASCADE;

-- name: count_waiting
SELECT count(*)
FROM tokens, jobs
WHERE (tokens.transaction_id, tokens.id) > (jobs.last_transaction_id, jobs.last_seq);
