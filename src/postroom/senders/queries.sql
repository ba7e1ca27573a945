-- Statements of senders, in alphabetical order.

-- name: change_sender :maybe
-- Set the editable fields. The quota used today is kept; a raised limit resumes an account paused at its limit.
UPDATE sender_accounts
SET email = :email, display_name = :display_name, gmail_subject_email = :gmail_subject_email, smtp_host = :smtp_host,
    smtp_port = :smtp_port, smtp_username = :smtp_username, smtp_use_tls = :smtp_use_tls, ses_region = :ses_region,
    smtp_password_encrypted = :smtp_password_encrypted, credentials_encrypted = :credentials_encrypted,
    credentials_key_id = :credentials_key_id, daily_limit = :daily_limit, batch_size = :batch_size,
    send_delay_ms = :send_delay_ms, lanes = :lanes::text[]::delivery_lane[], notes = :notes,
    warmup_limits = :warmup_limits, warmup_days_per_stage = :warmup_days_per_stage, warmup_stage = :warmup_stage,
    warmup_current_limit = :warmup_current_limit, warmup_days = :warmup_days,
    warmup_stage_sent = CASE WHEN :warmup_days = 0 THEN 0 ELSE warmup_stage_sent END,
    warmup_stage_bounces = CASE WHEN :warmup_days = 0 THEN 0 ELSE warmup_stage_bounces END,
    status = :status, resume_status = :resume_status, updated_at = now()
WHERE id = :id
RETURNING id;

-- name: decay_backoff :exec
-- Lower the back-off of a destination that accepts mail again; delete rows that hold only an expired back-off.
WITH calmer AS (
    UPDATE destination_domains
    SET deferrals = 0, backoff_level = greatest(backoff_level - 1, 0), updated_at = coalesce(:now::timestamptz, now())
    WHERE domain = ANY(:domains::text[])
        AND (deferrals > 0 OR backoff_level > CASE
            WHEN max_connections IS NULL AND messages_per_second IS NULL THEN 1 ELSE 0 END)
        AND (paused_until IS NULL OR paused_until <= coalesce(:now::timestamptz, now()))
)
DELETE FROM destination_domains
WHERE domain = ANY(:domains::text[])
    AND max_connections IS NULL AND messages_per_second IS NULL AND deferrals = 0 AND backoff_level <= 1
    AND (paused_until IS NULL OR paused_until <= coalesce(:now::timestamptz, now()));

-- name: delete_domain :maybe
-- Remove the limits of a destination.
DELETE FROM destination_domains
WHERE domain = :domain
RETURNING domain;

-- name: delete_sender :maybe
-- Delete an account and its secrets. Claims and the ledger keep its id.
DELETE FROM sender_accounts
WHERE id = :id
RETURNING email;

-- name: find_sender :maybe
-- One account with its sealed secret.
SELECT id, email, display_name, auth_type, status, status_reason, paused_by, resume_status, gmail_subject_email,
    smtp_host, smtp_port, smtp_username, smtp_use_tls, ses_region, daily_limit, batch_size, send_delay_ms, lanes::text[],
    daily_sent, daily_bounces, daily_errors, consecutive_errors, last_reset_at, warmup_stage, warmup_current_limit,
    warmup_days, warmup_limits, warmup_days_per_stage, paused_until, last_used_at, created_at, updated_at, notes,
    coalesce(smtp_password_encrypted, credentials_encrypted) AS secret, credentials_key_id AS key_id
FROM sender_accounts
WHERE id = :id;

-- name: has_turns :one
-- True if an account of a lane has quota left, now or within a minute.
SELECT EXISTS (
    SELECT FROM sender_accounts
    WHERE status IN ('active', 'warming_up')
        AND :lane::text::delivery_lane = ANY (lanes)
        AND daily_sent < least(daily_limit, warmup_current_limit)
        AND (paused_until IS NULL OR paused_until <= coalesce(:now::timestamptz, now()) + interval '1 minute')
        AND (next_start_at IS NULL OR next_start_at <= coalesce(:now::timestamptz, now()) + interval '1 minute')
) AS has_turns;

-- name: insert_sender :one
-- Insert an account.
INSERT INTO sender_accounts (
    id, email, display_name, auth_type, gmail_subject_email, smtp_host, smtp_port, smtp_username, smtp_use_tls, ses_region,
    smtp_password_encrypted, credentials_encrypted, credentials_key_id, daily_limit, batch_size, send_delay_ms, lanes,
    notes, warmup_limits, warmup_days_per_stage, warmup_stage, warmup_current_limit, status
)
VALUES (
    :id, :email, :display_name, :auth_type, :gmail_subject_email, :smtp_host, :smtp_port, :smtp_username, :smtp_use_tls,
    :ses_region, :smtp_password_encrypted, :credentials_encrypted, :credentials_key_id, :daily_limit, :batch_size,
    :send_delay_ms, :lanes::text[]::delivery_lane[], :notes, :warmup_limits, :warmup_days_per_stage, :warmup_stage,
    :warmup_current_limit, :status
)
RETURNING id;

-- name: list_domains :many
-- Destinations with limits or an active pause, by name, after a cursor.
SELECT domain, max_connections, messages_per_second, paused_until, backoff_level, updated_at
FROM destination_domains
WHERE :after_domain::text IS NULL OR domain > :after_domain
ORDER BY domain
LIMIT :page_limit;

-- name: list_sealed :many
-- Every account with a secret.
SELECT id
FROM sender_accounts
WHERE credentials_key_id IS NOT NULL
ORDER BY id;

-- name: list_senders :many
-- Accounts, oldest first, after a cursor or with these ids; with their sealed secrets.
SELECT id, email, display_name, auth_type, status, status_reason, paused_by, resume_status, gmail_subject_email,
    smtp_host, smtp_port, smtp_username, smtp_use_tls, ses_region, daily_limit, batch_size, send_delay_ms, lanes::text[],
    daily_sent, daily_bounces, daily_errors, consecutive_errors, last_reset_at, warmup_stage, warmup_current_limit,
    warmup_days, warmup_limits, warmup_days_per_stage, paused_until, last_used_at, created_at, updated_at, notes,
    coalesce(smtp_password_encrypted, credentials_encrypted) AS secret, credentials_key_id AS key_id
FROM sender_accounts
WHERE (:ids::bigint[] IS NULL OR id = ANY(:ids))
    AND (:after_id::bigint IS NULL OR id > :after_id)
ORDER BY id
LIMIT :page_limit;

-- name: lock_sender :maybe
-- Lock an account until the transaction ends: a change writes the whole row and must not undo a concurrent one.
SELECT id
FROM sender_accounts
WHERE id = :id
FOR UPDATE;

-- name: pause_sender :maybe
-- Pause an account on behalf of a person; only a person resumes it.
UPDATE sender_accounts
SET status = 'paused', paused_by = 'person', status_reason = :reason, resume_status = NULL
WHERE id = :id AND paused_by IS DISTINCT FROM 'person'
RETURNING id;

-- name: pause_unhealthy :exec
-- Pause accounts with poor results. Accounts already paused or suspended are unchanged.
UPDATE sender_accounts AS a
SET status = 'paused', paused_by = 'health', status_reason = i.reason, resume_status = NULL
FROM unnest(:account_id::bigint[], :reason::text[]) AS i(account_id, reason)
WHERE a.id = i.account_id AND a.status IN ('active', 'warming_up', 'paused_limit_reached');

-- name: put_domain :one
-- Set the limits of a destination; an active pause stays.
INSERT INTO destination_domains (domain, max_connections, messages_per_second)
VALUES (:domain, :max_connections, :messages_per_second)
ON CONFLICT (domain) DO UPDATE
SET max_connections = excluded.max_connections, messages_per_second = excluded.messages_per_second,
    next_start_at = NULL, planned_until = NULL, updated_at = now()
RETURNING domain, max_connections, messages_per_second, paused_until, backoff_level, updated_at;

-- name: raise_backoff :exec
-- Record throttling by destinations. The third time in a row all mail to them is paused, each time twice as long as
-- before: a minute, two, four … an hour. Replies to mail that was in flight when the pause began are not counted. The
-- schedule is that of runtime/loop.py (first 60 s, longest 3,600 s, no jitter); it is in the row because workers on
-- all hosts share it. Level 7 is the first whose pause reaches the hour; a higher one would only take longer to decay.
-- ORDER BY: all workers lock destinations in one order, so that two of them cannot deadlock.
INSERT INTO destination_domains AS d (domain, deferrals)
SELECT i.domain, i.count
FROM unnest(:domain::text[], :count::integer[]) AS i(domain, count)
ORDER BY i.domain
ON CONFLICT (domain) DO UPDATE
SET deferrals = CASE
        WHEN d.paused_until > coalesce(:now::timestamptz, now()) THEN d.deferrals
        WHEN d.deferrals + excluded.deferrals >= 3 THEN 0
        ELSE d.deferrals + excluded.deferrals
    END,
    backoff_level = CASE
        WHEN d.paused_until > coalesce(:now::timestamptz, now()) OR d.deferrals + excluded.deferrals < 3 THEN d.backoff_level
        ELSE least(d.backoff_level + 1, 7)
    END,
    paused_until = CASE
        WHEN d.paused_until > coalesce(:now::timestamptz, now()) OR d.deferrals + excluded.deferrals < 3 THEN d.paused_until
        ELSE coalesce(:now::timestamptz, now()) + least(interval '1 minute' * 2 ^ d.backoff_level, interval '1 hour')
    END,
    updated_at = coalesce(:now::timestamptz, now());

-- name: record_results :many
-- Add the results of attempts to their accounts: counters, health of the last hour, a pause or a suspension. Returns
-- the figures of each account, these attempts included.
WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest(
        :account_id::bigint[], :tried::integer[], :bounces::integer[], :errors::integer[], :errors_in_a_row::integer[],
        :only_errors::boolean[], :rest::interval[], :rest_problem::text[], :login_problem::text[]
    ) AS i(account_id, tried, bounces, errors, errors_in_a_row, only_errors, rest, rest_problem, login_problem)
),
locked AS MATERIALIZED ( -- one lock order prevents deadlocks
    SELECT id FROM sender_accounts WHERE id = ANY(:account_id::bigint[]) ORDER BY id FOR UPDATE
),
counted AS (
    UPDATE sender_accounts AS a
    SET daily_bounces = a.daily_bounces + i.bounces,
        daily_errors = a.daily_errors + i.errors,
        consecutive_errors = CASE WHEN i.only_errors THEN a.consecutive_errors ELSE 0 END + i.errors_in_a_row,
        paused_until = greatest(a.paused_until, coalesce(:now::timestamptz, now()) + i.rest),
        status = CASE WHEN i.login_problem IS NOT NULL AND a.status <> 'paused' THEN 'suspended' ELSE a.status END,
        resume_status = CASE WHEN i.login_problem IS NULL THEN a.resume_status END,
        status_reason = CASE
            WHEN a.status = 'paused' THEN a.status_reason
            WHEN i.login_problem IS NOT NULL THEN i.login_problem
            WHEN a.status = 'suspended' THEN a.status_reason
            WHEN i.rest IS NOT NULL THEN i.rest_problem
            WHEN i.only_errors THEN a.status_reason
        END -- an account that sends again has none
    FROM input AS i, locked
    WHERE a.id = i.account_id AND locked.id = a.id
    RETURNING a.id, a.consecutive_errors, i.tried, i.bounces, i.errors
),
noted AS (
    INSERT INTO sender_health AS h (account_id, bucket, tried, bounces, errors)
    SELECT id, date_bin('5 minutes', coalesce(:now::timestamptz, now()), 'epoch'), tried, bounces, errors
    FROM counted
    ORDER BY id
    ON CONFLICT (account_id, bucket) DO UPDATE
    SET tried = h.tried + excluded.tried, bounces = h.bounces + excluded.bounces, errors = h.errors + excluded.errors
)
SELECT counted.id AS account_id, counted.tried + coalesce(earlier.tried, 0) AS tried,
    counted.bounces + coalesce(earlier.bounces, 0) AS bounces, counted.errors + coalesce(earlier.errors, 0) AS errors,
    counted.consecutive_errors AS errors_in_a_row
FROM counted,
    LATERAL (
        SELECT sum(h.tried) AS tried, sum(h.bounces) AS bounces, sum(h.errors) AS errors
        FROM sender_health AS h
        WHERE h.account_id = counted.id AND h.bucket > coalesce(:now::timestamptz, now()) - :health_window::interval
    ) AS earlier;

-- name: release_senders :exec
-- Release holds. The next start follows from the age of the last start, by the clock of this database.
UPDATE sender_accounts AS a
SET held_by = NULL,
    next_start_at = coalesce(:now::timestamptz, clock_timestamp()) - i.since_start
        + a.send_delay_ms * interval '1 millisecond'
FROM unnest(:account_id::bigint[], :claim_id::bigint[], :since_start::interval[]) AS i(account_id, claim_id, since_start)
WHERE a.id = i.account_id AND a.held_by = i.claim_id;

-- name: replace_secret :exec
-- Store the same secret, sealed with another key.
UPDATE sender_accounts
SET smtp_password_encrypted = CASE WHEN auth_type = 'smtp' THEN :secret END,
    credentials_encrypted = CASE WHEN auth_type <> 'smtp' THEN :secret END,
    credentials_key_id = :key_id, updated_at = now()
WHERE id = :id;

-- name: reserve_id :one
-- The id of a new account, reserved because its secret is sealed with it.
SELECT nextval('sender_accounts_id_seq') AS id;

-- name: resume_sender :maybe
-- Resume an account for a person: to its warm-up if it was in one, with its error record cleared.
WITH cleared AS (
    DELETE FROM sender_health
    WHERE account_id = :id
)
UPDATE sender_accounts
SET status = CASE WHEN warmup_stage > 0 THEN 'warming_up' ELSE 'active' END, paused_by = NULL, status_reason = NULL,
    resume_status = NULL, paused_until = NULL, consecutive_errors = 0
WHERE id = :id AND status IN ('paused', 'suspended')
RETURNING id;
