-- The statements of accounts, in alphabetical order. Statements that depend on the time take :now; NULL uses the
-- database's clock. Times of accounts and tokens are epoch seconds; see the migration.

-- name: consume_code :one
-- Consume the newest token of an address by its code, or count a wrong guess; see functions/consume_code_at.sql.
SELECT verdict, account
FROM consume_code_at(:email, :action::text::token_action, :code, coalesce(:now::timestamptz, now()), :spelling);

-- name: consume_secret :maybe
-- Consume a live token by its secret; of two concurrent attempts, one gets the row. Locks the account before the token,
-- in the same order as a change of address, to avoid deadlocks.
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
-- Count a token request for a token that exists already; see functions/count_request.sql.
SELECT count_request(:email, :action::text::token_action, coalesce(:now::timestamptz, now())) AS is_counted;

-- name: count_waiting :one
-- The number of tokens after the cursor, up to a bound, including those that a running transaction delays.
SELECT count(*) AS waiting
FROM (
    SELECT FROM tokens
    WHERE (transaction_id, id) > (
        SELECT CASE WHEN last_transaction_id > pg_snapshot_xmin(pg_current_snapshot())
            THEN '0'::xid8 ELSE last_transaction_id END, cursor_id
        FROM jobs
        WHERE job_type = 'mailroom'
    )
    LIMIT :bound
) AS bounded;

-- name: create_account :one
-- Insert an account unless its address or login is taken. An id is drawn in both cases, so that the response is the same.
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
-- Take the next tokens to mail and advance the cursor; see functions/dequeue_tokens.sql.
SELECT id, action::text, account, email, login, secret, code, expires_at, created_at, locale
FROM dequeue_tokens(:batch_limit, coalesce(:now::timestamptz, now()));

-- name: find_account :maybe
-- Read an account.
SELECT id, email, status::text, login, locale, created_at, status_changed_at, activated_at, suspended_at, unsuspended_at
FROM accounts
WHERE id = :account_id;

-- name: find_login :maybe
-- The account with a login, ignoring case.
SELECT id
FROM accounts
WHERE lower(login) = lower(:login);

-- name: find_token :maybe
-- The state of a token.
SELECT consumed_at IS NOT NULL AS is_used, wrong_guesses >= 5 AS is_void
FROM tokens
WHERE secret = :secret AND action = :action::text::token_action;

-- name: forget_limits :exec
-- One bounded step of retention: delete counters of addresses without a request or guess for the retention time.
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
-- True if a sign-up with a taken address reserved this login.
SELECT EXISTS (
    SELECT FROM reserved_logins WHERE login_hash = sha256(convert_to(lower(:login), 'UTF8'))
) AS is_reserved;

-- name: issue_activation :maybe
-- Create an activation token for a provisioned account.
INSERT INTO tokens (account, action)
SELECT id, 'activation'
FROM accounts
WHERE id = :account_id AND status = 'provisioned'
FOR KEY SHARE -- an erasure may delete the account meanwhile, and the INSERT would fail on its foreign key
RETURNING id;

-- name: list_accounts :many
-- Accounts, newest first, below a cursor: found by the first filter that is given,
-- filtered by the others; see `runtime.page.search_page`.
SELECT id, email, status::text, login, locale, created_at, status_changed_at, activated_at, suspended_at, unsuspended_at,
    is_match, place = :bound AS is_last
FROM (
    SELECT *, row_number() OVER () AS place,
        (:status IS NULL OR status = :status::account_status) AS is_match
    FROM (
        (SELECT * FROM accounts
        WHERE :email::text IS NOT NULL AND lower(email) IN (lower(:email), lower(:spelling::text))
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id + 0 DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM accounts
        WHERE :email IS NULL AND status BETWEEN :status::text::account_status AND :status::account_status
            AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY status DESC, id DESC LIMIT :bound::bigint)
        UNION ALL
        (SELECT * FROM accounts
        WHERE :email IS NULL AND :status IS NULL AND id < coalesce(:before_id::bigint, 9223372036854775807)
        ORDER BY id DESC LIMIT :bound::bigint)
    ) AS found
) AS examined
WHERE is_match OR place = :bound
LIMIT :page_limit;

-- name: list_tokens :many
-- The tokens of an account, newest first, without secret and code; and whether the fifth wrong guess made it void.
SELECT id, action::text, created_at, expires_at, consumed_at, wrong_guesses, wrong_guesses >= 5 AS is_void
FROM tokens
WHERE account = :account_id
ORDER BY id DESC
LIMIT :page_limit;

-- name: measure_guesses :one
-- The number of wrong codes within a day, over all addresses.
SELECT coalesce(sum(day_guesses), 0) AS guesses
FROM address_limits
WHERE touched_at > coalesce(:now::timestamptz, now()) - interval '1 day'
    AND day_from > coalesce(:now::timestamptz, now()) - interval '1 day';

-- name: measure_stall :one
-- Committed tokens that cannot be read yet because an older transaction is still running, and its session or prepared
-- transaction, if this role may see it.
WITH line AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS transaction_id
),
held AS (
    SELECT count(*) AS tokens, min(created_at) AS created_at
    FROM tokens
    WHERE transaction_id >= (SELECT transaction_id FROM line)
        AND (transaction_id, id) > (SELECT last_transaction_id, cursor_id FROM jobs WHERE job_type = 'mailroom')
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
-- Reorder tokens if the room was restored from another cluster; see functions/renumber_tokens.sql.
SELECT renumber_tokens() WHERE has_restored_tokens();

-- name: request_token :one
-- Create a token for the account with this address, if there is one; see functions/request_token_at.sql.
SELECT request_token_at(:email, :action::text::token_action, coalesce(:now::timestamptz, now()), :spelling) AS is_counted;

-- name: reserve_login :exec
-- Reserve a login without an account.
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
-- Unsuspend an account; the trigger makes one that was never activated provisioned instead of active.
UPDATE accounts
SET status = 'active'
WHERE id = :account_id AND status = 'suspended'
RETURNING id;
