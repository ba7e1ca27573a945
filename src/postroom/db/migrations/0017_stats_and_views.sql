-- Statistics that are added up as things happen, and the queue and the ledger under the names that reports know them by.

-- ── Statistics ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- What happened, in the transaction in which it happened. Only ever inserted into and, by the folder, emptied into
-- stats_hourly: no writer waits for another's row. A reader adds both tables in one statement.
CREATE TABLE stat_deltas (
    hour              timestamptz NOT NULL, -- the beginning of the hour in which it happened
    campaign_id       bigint,
    sender_account_id bigint,
    amount            bigint      NOT NULL DEFAULT 1, -- less than nothing when something is taken back: a dead letter redriven
    domain            text        NOT NULL DEFAULT '', -- lower case, of the first recipient; empty when it is not known
    metric            text        NOT NULL  -- stats/model.py; no CHECK, which would be read and compiled for every insert
) WITH (
    -- It is filled and emptied all day long; what readers add up must not lie between the dead.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1
);

-- Counters by hour, campaign, sender and domain.
CREATE TABLE stats_hourly (
    hour              timestamptz NOT NULL,
    campaign_id       bigint      NOT NULL, -- 0: none
    sender_account_id bigint      NOT NULL, -- 0: none
    amount            bigint      NOT NULL,
    domain            text        NOT NULL, -- empty: not known
    metric            text        NOT NULL,
    PRIMARY KEY (hour, campaign_id, sender_account_id, domain, metric)
) WITH (fillfactor = 80); -- the present hour is updated all the time, and no index knows the amount

-- measure by campaign, sender, domain: all of its hours, however long ago
CREATE INDEX stats_hourly_campaign_idx ON stats_hourly (campaign_id, hour) WHERE campaign_id <> 0;
CREATE INDEX stats_hourly_sender_idx ON stats_hourly (sender_account_id, hour) WHERE sender_account_id <> 0;
CREATE INDEX stats_hourly_domain_idx ON stats_hourly (domain, hour);

-- ── Views ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The queue, one row per delivery by e-mail, with its first recipient. Whoever reads it needs the rights on the tables
-- below it. Everything but the delivery itself is a subquery, and so only read when it is asked for, and the rows can be
-- locked. To insert is to accept, to set the status to `cancelled` is to cancel: functions/*_email_queue.sql.
CREATE VIEW email_queue WITH (security_invoker = true) AS
SELECT d.id,
    (SELECT r.email FROM delivery_recipients AS r
        WHERE r.delivery_id = d.id AND r.kind = 'to' AND r.position = 0) AS recipient_email,
    (SELECT r.name FROM delivery_recipients AS r
        WHERE r.delivery_id = d.id AND r.kind = 'to' AND r.position = 0) AS recipient_name,
    (SELECT p.subject FROM delivery_payloads AS p WHERE p.delivery_id = d.id) AS subject,
    (SELECT p.html_body FROM delivery_payloads AS p WHERE p.delivery_id = d.id) AS html_body,
    (SELECT p.text_body FROM delivery_payloads AS p WHERE p.delivery_id = d.id) AS text_body,
    coalesce(d.campaign_id::text, d.tags ->> 'campaign_id') AS campaign_id,
    NULL::text AS tracking_token, -- tokens are signed and carry what they mean; none is stored
    d.custom_data,
    CASE d.state
        WHEN 'queued' THEN 'pending'
        WHEN 'rendered' THEN 'pending'
        WHEN 'sending' THEN 'assigned'
        WHEN 'sent' THEN 'sent'
        WHEN 'cancelled' THEN 'cancelled'
        ELSE 'failed' -- failed, dead_letter, suppressed: last_error says which
    END AS status,
    d.sender_account_id AS assigned_to,
    (SELECT c.claimed_at FROM claims AS c WHERE c.id = d.claim_id) AS assigned_at,
    -- tries after the first: made, under way, or waited for
    CASE WHEN d.next_attempt_at IS NULL THEN greatest(d.attempt_count - 1, 0) ELSE d.attempt_count END::integer AS retry_count,
    d.max_retries::integer AS max_retries, -- NULL: the ladder of its lane decides
    d.next_attempt_at AS next_retry_at,
    CASE WHEN d.state <> 'sent' THEN coalesce(d.detail, d.reason) END AS last_error,
    d.created_at,
    coalesce(d.finished_at, (SELECT c.claimed_at FROM claims AS c WHERE c.id = d.claim_id), d.created_at) AS updated_at,
    CASE WHEN d.state = 'sent' THEN d.finished_at END AS sent_at
FROM deliveries AS d
WHERE d.channel = 'email';

-- The ledger, one row per finished attempt, complete for as long as the attempt itself is kept.
CREATE VIEW send_logs WITH (security_invoker = true) AS
SELECT (a.delivery_id << 15) | a.attempt_no AS id,
    a.sender_account_id,
    a.delivery_id AS email_queue_id,
    coalesce(a.campaign_id::text, a.tags ->> 'campaign_id') AS campaign_id,
    a.recipient AS recipient_email,
    CASE
        WHEN a.outcome = 'sent' AND EXISTS (
            SELECT FROM bounces AS b
            WHERE b.delivery_id = a.delivery_id AND b.kind = 'bounce' AND b.is_verified
                AND b.origin <> 'session' AND b.class <> 'transient'
        ) THEN 'bounced' -- taken, and returned later
        WHEN a.outcome = 'sent' THEN 'sent'
        WHEN a.outcome IN ('deferred', 'ambiguous') THEN 'failed'
        -- refused for the sake of the mailbox; by the reply's enhanced code or, without one, by where it was said
        WHEN a.outcome = 'failed' AND (a.enhanced_code ~ '^5\.[12]\.'
            OR (a.enhanced_code IS NULL AND a.stage = 'recipient' AND a.code BETWEEN 500 AND 599)) THEN 'bounced'
        ELSE 'rejected' -- refused for any other reason, or never let out: suppressed, expired
    END AS status,
    a.message_id,
    CASE WHEN a.outcome <> 'sent' THEN coalesce(nullif(a.reply_text, ''), a.outcome::text) END AS error_message,
    CASE WHEN a.outcome <> 'sent' THEN coalesce(a.enhanced_code, a.code::text) END AS error_code,
    a.finished_at AS sent_at,
    (extract(epoch FROM a.finished_at - a.started_at) * 1000)::integer AS response_time_ms,
    a.attempt_no - 1 AS retry_attempt,
    a.custom_data,
    a.other_recipients,
    a.idempotency_key,
    a.template_id,
    a.tags
FROM attempts AS a
WHERE a.domain IS NOT NULL -- every attempt of a mail has one, and no attempt of a webhook
    -- Always true. Recipients are in no order on disk, so the planner expects nothing of their Bloom filter alone and reads the
    -- table; beside a condition on the ordered column of attempts_ledger_idx it uses the index.
    AND a.finished_at > '-infinity';

-- Who cannot be reached, or does not want to be. An address that stands on two lists is shown with the graver reason.
CREATE VIEW bounce_list WITH (security_invoker = true) AS
SELECT DISTINCT ON (s.address)
    s.id,
    s.address AS email,
    CASE s.reason WHEN 'hard_bounce' THEN 'hard' WHEN 'soft_bounce' THEN 'soft' ELSE 'complaint' END AS bounce_type,
    coalesce(s.detail, s.origin) AS bounce_reason,
    s.code AS bounce_code,
    s.sender_account_id,
    s.campaign_id::text AS campaign_id,
    s.first_seen_at AS first_bounced_at,
    s.last_seen_at AS last_bounced_at,
    greatest(s.bounce_count, 1) AS bounce_count
FROM suppressions AS s
WHERE s.reason IN ('hard_bounce', 'soft_bounce', 'complaint')
ORDER BY s.address, s.reason DESC;

-- Who asked for no more bulk mail; with where from, if it was by a link of ours.
CREATE VIEW unsubscribe_list WITH (security_invoker = true) AS
SELECT DISTINCT ON (s.address)
    s.id,
    s.address AS email,
    coalesce(s.detail, s.origin) AS unsubscribe_reason,
    s.campaign_id::text AS campaign_id,
    (SELECT u.user_agent FROM unsubscriptions AS u WHERE u.email = s.address AND u.resubscribed_at IS NULL) AS user_agent,
    (SELECT u.ip_address FROM unsubscriptions AS u WHERE u.email = s.address AND u.resubscribed_at IS NULL) AS ip_address,
    s.created_at AS unsubscribed_at
FROM suppressions AS s
WHERE s.reason = 'unsubscribe'
ORDER BY s.address, s.created_at;
