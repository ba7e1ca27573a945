-- Everything accounts asks of the database, in alphabetical order. Statements that depend on the time take :now; NULL
-- leaves it to the database's clock. Times of accounts and tokens are epoch seconds; see the migration.

-- name: consume_code :one
-- Consume the newest token of an address by its code, or count a wrong guess; see functions/consume_code_at.sql.
SELECT verdict, account
FROM consume_code_at(:email, :action::text::token_action, :code, coalesce(:now::timestamptz, now()), :spelling);

-- name: consume_secret :maybe
-- Consume a live token by its secret; of two who try at once, one gets the row. The account is locked before the token, as
-- by whoever changes its address.
WITH owner AS MATERIALIZED (
    SELECT id
    FROM accounts
    WHERE id = (SELECT account FROM tokens WHERE secret = :secret)
    FOR NO KEY UPDATE
)
UPDATE tokens
SET consumed_at = floor(extract(epoch FROM coalesce(:now::timestamptz, now())))
FROM owner
WHERE secret = :secret
    AND account = owner.id
    AND action = :action::text::token_action
    AND consumed_at IS NULL
    AND expires_at > extract(epoch FROM coalesce(:now::timestamptz, now()))
RETURNING account;

-- name: count_request :one
-- Count a request for a token, as request_token does, for one that has been made; see functions/count_request.sql.
SELECT count_request(:email, :action::text::token_action, coalesce(:now::timestamptz, now())) AS is_counted;

-- name: count_waiting :one
-- How many tokens stand past the cursor, up to a bound; with those that a running transaction still holds back.
SELECT count(*) AS waiting
FROM (
    SELECT FROM tokens
    WHERE (transaction_id, id) > (
        SELECT CASE WHEN last_transaction_id > pg_snapshot_xmin(pg_current_snapshot())
            THEN '0'::xid8 ELSE last_transaction_id END, last_seq
        FROM jobs
        WHERE job_type = 'mailroom'
    )
    LIMIT :bound
) AS bounded;

-- name: create_account :one
-- Insert an account unless its address or login is taken. The id is drawn either way.
WITH drawn AS MATERIALIZED (
    SELECT nextval('accounts_id_seq') AS id
),
inserted AS (
    INSERT INTO accounts (id, email, login, locale)
    SELECT id, :email, :login, :locale
    FROM drawn
    ON CONFLICT DO NOTHING
    RETURNING id
)
SELECT drawn.id, inserted.id IS NOT NULL AS is_new
FROM drawn
LEFT JOIN inserted USING (id);

-- name: dequeue :many
-- The next tokens to mail, and the cursor past them; see functions/dequeue_tokens.sql.
SELECT id, action::text, account, email, login, secret, code, expires_at, created_at, locale
FROM dequeue_tokens(:batch_limit, coalesce(:now::timestamptz, now()));

-- name: find_account :maybe
-- One account.
SELECT id, email, status::text, login, locale, created_at, status_changed_at, activated_at, suspended_at, unsuspended_at
FROM accounts
WHERE id = :account_id;

-- name: find_login :maybe
-- Whose login it is, in any case.
SELECT id
FROM accounts
WHERE lower(login) = lower(:login);

-- name: find_token :maybe
-- What has become of a token.
SELECT consumed_at IS NOT NULL AS is_used, wrong_guesses >= 5 AS is_void
FROM tokens
WHERE secret = :secret AND action = :action::text::token_action;

-- name: forget_limits :exec
-- One bounded step of retention: counters of addresses that have been quiet for the retention time.
DELETE FROM address_limits
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM address_limits
    WHERE touched_at < coalesce(:now::timestamptz, now()) - :retention::interval
    LIMIT :batch_limit
));

-- name: forget_tokens :one
-- One bounded step of retention, from one id on; see functions/forget_tokens.sql.
SELECT looked_at, last_id, forgotten
FROM forget_tokens(:after, :batch_limit, :retention, coalesce(:now::timestamptz, now()));

-- name: is_login_reserved :one
-- Whether somebody signed up with this login and an address that was taken.
SELECT EXISTS (
    SELECT FROM reserved_logins WHERE login_hash = sha256(convert_to(lower(:login), 'UTF8'))
) AS is_reserved;

-- name: issue_activation :maybe
-- A new activation token, for an account that still waits to be activated.
INSERT INTO tokens (account, action)
SELECT id, 'activation'
FROM accounts
WHERE id = :account_id AND status = 'provisioned'
FOR KEY SHARE -- an erasure may delete the account meanwhile: the INSERT would fail on its foreign key
RETURNING id;

-- name: list_accounts :many
-- Accounts newest first, below a cursor, by any of the filters.
SELECT id, email, status::text, login, locale, created_at, status_changed_at, activated_at, suspended_at, unsuspended_at
FROM accounts
WHERE (:status::text IS NULL OR status = :status::account_status)
    AND (:email::text IS NULL OR lower(email) IN (lower(:email), lower(:spelling)))
    AND (:before_id::bigint IS NULL OR id < :before_id)
ORDER BY id DESC
LIMIT :page_limit;

-- name: measure_guesses :one
-- How many wrong codes were tried within a day, over all addresses.
SELECT coalesce(sum(day_guesses), 0) AS guesses
FROM address_limits
WHERE touched_at > coalesce(:now::timestamptz, now()) - interval '1 day'
    AND day_from > coalesce(:now::timestamptz, now()) - interval '1 day';

-- name: measure_stall :one
-- The tokens that are committed but cannot be read yet, because a transaction that began before theirs still runs; and
-- who that is, as far as this role may see: a session, or a prepared transaction that nobody has ended.
WITH line AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS transaction_id
),
held AS (
    SELECT count(*) AS tokens, min(created_at) AS created_at
    FROM tokens
    WHERE transaction_id >= (SELECT transaction_id FROM line)
        AND (transaction_id, id) > (SELECT last_transaction_id, last_seq FROM jobs WHERE job_type = 'mailroom')
)
SELECT held.tokens,
    greatest(extract(epoch FROM coalesce(:now::timestamptz, now())) - held.created_at, 0)::float8 AS stalled_s,
    holder.pid AS holder_pid,
    prepared.gid AS holder_gid
FROM held
CROSS JOIN line
LEFT JOIN pg_stat_activity AS holder ON holder.backend_xid = line.transaction_id::xid
LEFT JOIN pg_prepared_xacts AS prepared ON prepared.transaction = line.transaction_id::xid;

-- name: renumber_tokens :exec
-- Go on after a dump was restored into this cluster, if one was; see functions/renumber_tokens.sql.
SELECT renumber_tokens() WHERE has_restored_tokens();

-- name: request_token :one
-- A new token for whoever has the address, if anybody does; see functions/request_token_at.sql.
SELECT request_token_at(:email, :action::text::token_action, coalesce(:now::timestamptz, now()), :spelling) AS is_counted;

-- name: reserve_login :exec
-- Take a login out of circulation as an account would, without one.
INSERT INTO reserved_logins (login_hash)
VALUES (sha256(convert_to(lower(:login), 'UTF8')))
ON CONFLICT DO NOTHING;

-- name: suspend :maybe
-- Suspend an account that is not suspended.
UPDATE accounts
SET status = 'suspended'
WHERE id = :account_id AND status <> 'suspended'
RETURNING id;

-- name: unsuspend :maybe
-- Give an account back; the trigger makes one that was never activated provisioned instead of active.
UPDATE accounts
SET status = 'active'
WHERE id = :account_id AND status = 'suspended'
RETURNING id;
