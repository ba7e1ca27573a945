-- What the benchmark of accounts asks of a room. The search path finds the room.

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

-- name: be_busy
UPDATE busy_jobs SET until = now() + interval '1 hour';

-- name: be_idle
UPDATE busy_jobs SET until = '-infinity';

-- name: clear
TRUNCATE accounts, deliveries CASCADE;
