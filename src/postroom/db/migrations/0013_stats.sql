-- Stats: counters by hour, and views of the queue, the ledger and the suppressions under the names that reports use.

-- ── Statistics ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- Counts of opens, clicks, bounces and other things that are no steps of a delivery, written in the transaction of what
-- they count. Writers only insert, so no writer waits for another's row; the rollup moves the rows into stats_hourly.
CREATE TABLE stat_deltas (
    hour              timestamptz NOT NULL, -- the start of the hour
    campaign_id       bigint,
    sender_account_id bigint,
    amount            bigint      NOT NULL DEFAULT 1, -- negative for a correction, such as a redriven dead letter
    domain            text        NOT NULL DEFAULT '', -- lower case, of the first recipient; empty if unknown
    template_id       text,
    tags              text[],     -- of the delivery, as count_tags() writes them; NULL: none
    metric            text        NOT NULL  -- one of those in stats/model.py; no CHECK, which costs every insert time
) WITH (
    -- It is filled and emptied all day: without frequent vacuuming, readers would scan mostly dead rows.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1
);

-- Counters by hour, campaign, sender and domain. read_counts() adds the deltas and the steps that are not in it yet.
CREATE TABLE stats_hourly (
    hour              timestamptz NOT NULL,
    campaign_id       bigint      NOT NULL, -- 0: none
    sender_account_id bigint      NOT NULL, -- 0: none
    amount            bigint      NOT NULL,
    domain            text        NOT NULL, -- empty: unknown
    metric            text        NOT NULL,
    PRIMARY KEY (hour, campaign_id, sender_account_id, domain, metric)
) WITH (fillfactor = 80); -- the current hour is updated in place: no index contains the amount

-- measure by campaign, sender, domain: all hours
CREATE INDEX stats_hourly_campaign_idx ON stats_hourly (campaign_id, hour) WHERE campaign_id <> 0;
-- list_domains: the failures of a campaign, which are few among its counts
CREATE INDEX stats_hourly_failures_idx ON stats_hourly (campaign_id)
    WHERE campaign_id <> 0 AND metric IN ('bounced', 'returned', 'refused', 'dead_lettered');
CREATE INDEX stats_hourly_sender_idx ON stats_hourly (sender_account_id, hour) WHERE sender_account_id <> 0;
CREATE INDEX stats_hourly_domain_idx ON stats_hourly (domain, hour);

CREATE TYPE stats_dimension AS ENUM (
    'total',    -- all mail; the value is empty
    'campaign', -- the id; 0: none
    'sender',   -- the id of the account; 0: none
    'template', -- its id; empty: none; *: further templates of the hour
    'tag'       -- key=value; empty: none; key=*: further values of the key; *: further tags of the hour
);

-- The same counts by hour and one dimension alone. A mail with several tags counts for each of them, so sums over tags
-- are not the total. Templates and tags are in no other table of counts, and bounded per hour by roll_up().
-- read_dimension_counts() adds what is not in it yet.
CREATE TABLE stats_dimension_hours (
    dimension stats_dimension NOT NULL, -- see the type
    hour      timestamptz     NOT NULL,
    amount    bigint          NOT NULL,
    value     text            NOT NULL, -- of the dimension, see its type
    metric    text            NOT NULL,
    PRIMARY KEY (dimension, hour, value, metric) -- measure by a period, the values of an hour, delete_old_dimension_hours
) WITH (fillfactor = 80); -- the current hour is updated in place: no index contains the amount

-- measure and list_hours by one value, measure_campaigns
CREATE INDEX stats_dimension_hours_value_idx ON stats_dimension_hours (dimension, value, hour);

-- The last step that stats_hourly contains; one row. The rollup moves it in the transaction that adds the steps.
CREATE TABLE stats_cursor (
    is_only        boolean NOT NULL DEFAULT true PRIMARY KEY,
    transaction_id xid8    NOT NULL DEFAULT '0',
    position       bigint  NOT NULL DEFAULT 0,
    CONSTRAINT stats_cursor_one_row CHECK (is_only)
) WITH (fillfactor = 50); -- updated every two seconds

INSERT INTO stats_cursor DEFAULT VALUES;

-- Steps of deliveries share the positions of events. Set here: in a room that began as an event store alone, the
-- migration of delivery comes after that of events.
ALTER TABLE delivery_steps ALTER position SET DEFAULT nextval('events_position_seq');
ALTER TABLE deliveries ALTER position SET DEFAULT nextval('events_position_seq');

-- ── Views ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The queue, one row per delivery by e-mail, with its first recipient. Readers need rights on the tables below. Other
-- tables are read in subqueries: only when their columns are selected, and the rows can be locked. INSERT accepts a
-- delivery, an UPDATE of the status to `cancelled` cancels it: functions/*_email_queue.sql.
CREATE VIEW email_queue WITH (security_invoker = true) AS
SELECT d.id,
    d.recipient_email,
    d.recipient_name,
    (SELECT p.subject FROM delivery_payloads AS p WHERE p.delivery_id = d.id) AS subject,
    (SELECT p.html_body FROM delivery_payloads AS p WHERE p.delivery_id = d.id) AS html_body,
    (SELECT p.text_body FROM delivery_payloads AS p WHERE p.delivery_id = d.id) AS text_body,
    coalesce(d.campaign_id::text, d.tags ->> 'campaign_id') AS campaign_id,
    NULL::text AS tracking_token, -- tokens are signed and carry their data; none is stored
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
    -- attempts after the first: finished, running, or waiting
    CASE WHEN d.next_attempt_at IS NULL THEN greatest(d.attempt_count - 1, 0) ELSE d.attempt_count END::integer AS retry_count,
    d.max_retries::integer AS max_retries, -- NULL: the ladder of its lane decides
    d.next_attempt_at AS next_retry_at,
    CASE WHEN d.state <> 'sent' THEN coalesce(d.detail, d.reason) END AS last_error,
    d.created_at,
    coalesce(d.finished_at, (SELECT c.claimed_at FROM claims AS c WHERE c.id = d.claim_id), d.created_at) AS updated_at,
    CASE WHEN d.state = 'sent' THEN d.finished_at END AS sent_at
FROM deliveries AS d
WHERE d.channel = 'email';

-- The ledger, one row per finished attempt, for as long as the attempt is kept.
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
        ) THEN 'bounced' -- accepted, and returned later
        WHEN a.outcome = 'sent' THEN 'sent'
        WHEN a.outcome IN ('deferred', 'ambiguous') THEN 'failed'
        -- refused because of the mailbox: by the enhanced code or, without one, by the stage of the reply
        WHEN a.outcome = 'failed' AND (a.enhanced_code ~ '^5\.[12]\.'
            OR (a.enhanced_code IS NULL AND a.stage = 'recipient' AND a.code BETWEEN 500 AND 599)) THEN 'bounced'
        ELSE 'rejected' -- refused for another reason, or never sent: suppressed, expired
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
WHERE a.domain IS NOT NULL -- set for every attempt of a mail, and for no attempt of a webhook
    -- Always true. Recipients have no order on disk, so the planner ignores their Bloom filter alone and scans the
    -- table; with a condition on the ordered column of attempts_ledger_idx it uses the index.
    AND a.finished_at > '-infinity';

-- Addresses that bounced or complained. An address with two suppressions is shown with the more serious reason.
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

-- Addresses that unsubscribed from bulk mail; with the client, if they used an unsubscribe link.
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
