-- The rows of every listing, made by the database itself: `$1` rows over thirty days, of which two hundred, spread
-- evenly, have the values that listings look for. The values of the others are frequent, and those of two filters exclude
-- each other: a search for both finds nothing among very many.

-- name: begin_fill
SET synchronous_commit = off;
SET maintenance_work_mem = '512MB';

-- name: list_indexes
-- The indexes of a table that belong to no constraint: built afterwards, they take a third of the time.
SELECT c.relname AS name, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') AS definition
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = $1::text::regclass
    AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conindid = i.indexrelid);

-- name: list_foreign_keys
-- The foreign keys of a table: rows of one table are enough.
SELECT conname AS name FROM pg_constraint WHERE conrelid = $1::text::regclass AND contype = 'f';

-- name: fill_suppressions
INSERT INTO suppressions (address, scope, reason, origin, created_at, code)
SELECT CASE WHEN n % ($1 / 200) = 0 THEN 'rare-' || n || '@rare.example' ELSE 'reader-' || n || '@domain-' || n % 500 || '.example' END,
    'all', (CASE WHEN n % ($1 / 200) = 0 THEN 'complaint' WHEN n % 2 = 0 THEN 'manual' ELSE 'hard_bounce' END)::suppression_reason,
    CASE WHEN n % ($1 / 200) = 0 THEN 'rare' WHEN n % 2 = 0 THEN 'import' ELSE 'bounce' END,
    now() - interval '30 days' * (1 - n / $1::float8), '5.1.1'
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_audit_log
INSERT INTO audit_log (at, actor, action, subject, after)
SELECT now() - interval '30 days' * (1 - n / $1::float8),
    CASE WHEN n % ($1 / 200) = 0 THEN 'operator:ada@rare.example' WHEN n % 2 = 0 THEN 'key:7:ci' ELSE 'cli:ada' END,
    CASE WHEN n % ($1 / 200) = 0 THEN 'key.revoke' WHEN n % 2 = 0 THEN 'delivery.cancel' ELSE 'suppression.add' END,
    'delivery:' || n, '{"state": "cancelled"}'
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_bounces
INSERT INTO bounces (delivery_id, reported_at, code, is_verified, kind, class, enhanced, address, origin, text, report_id)
SELECT n, now() - interval '30 days' * (1 - n / $1::float8), 550, n % ($1 / 200) <> 1,
    CASE WHEN n % ($1 / 200) = 0 THEN 'complaint' ELSE 'bounce' END,
    CASE WHEN n % ($1 / 200) = 0 THEN NULL ELSE 'recipient_hard' END, '5.1.1',
    'reader-' || n || '@domain-' || n % 500 || '.example', 'listener', 'No such user.', decode(md5(n::text), 'hex')
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_malformed_commands
INSERT INTO malformed_commands (recorded_at, resubmitted_at, dismissed_at, source, reason, detail, raw)
SELECT now() - interval '30 days' * (1 - n / $1::float8), CASE WHEN n % ($1 / 200) = 1 THEN now() END,
    CASE WHEN n % ($1 / 200) = 2 THEN now() END,
    CASE WHEN n % ($1 / 200) = 0 THEN 'rare' WHEN n % 2 = 0 THEN 'shop' ELSE 'till' END,
    CASE WHEN n % ($1 / 200) = 0 THEN 'rare' WHEN n % 2 = 0 THEN 'bad_json' ELSE 'bad_payload' END, 'is not JSON', '{'
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_accounts
INSERT INTO accounts (email, login, status, activated_at, suspended_at)
SELECT 'reader-' || n || '@domain-' || n % 500 || '.example', 'reader-' || n,
    (CASE WHEN n % ($1 / 200) = 0 THEN 'suspended' WHEN n % 2 = 0 THEN 'provisioned' ELSE 'active' END)::account_status,
    CASE WHEN n % ($1 / 200) <> 0 AND n % 2 = 1 THEN 1700000000 END, CASE WHEN n % ($1 / 200) = 0 THEN 1700000000 END
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_users
INSERT INTO users (id, created_at, date_of_birth, timezone, first_name, last_name, email, planned_version)
SELECT md5(n::text)::uuid, now() - interval '30 days' * (1 - n / $1::float8), '1990-01-01', 'UTC', 'Ada', 'Lovelace',
    'reader-' || n || '@domain-' || n % 500 || '.example', 1
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_scheduled_events
-- Three quarters are in the past and completed.
INSERT INTO scheduled_events (user_id, event_type, status, target_timestamp_utc, target_timestamp_local, target_timezone,
    executed_at, failure_reason, idempotency_key, delivery_payload, late_by)
SELECT md5(n::text)::uuid, CASE WHEN n % ($1 / 200) = 2 THEN 'REMINDER' ELSE 'BIRTHDAY' END,
    (CASE WHEN n > $1 * 3 / 4 THEN 'PENDING' WHEN n % ($1 / 200) = 0 THEN 'FAILED' ELSE 'COMPLETED' END)::scheduled_event_status,
    target, target AT TIME ZONE 'UTC', 'UTC', CASE WHEN n <= $1 * 3 / 4 AND n % ($1 / 200) <> 0 THEN target END,
    CASE WHEN n <= $1 * 3 / 4 AND n % ($1 / 200) = 0 THEN 'no address' END, 'key-' || n, '{}',
    CASE WHEN n % ($1 / 200) = 1 THEN interval '1 hour' END
FROM generate_series(1, $1::bigint) AS n
CROSS JOIN LATERAL (SELECT now() - interval '30 days' * (0.75 - n / $1::float8)) AS planned(target);

-- name: fill_campaigns
INSERT INTO campaigns (status, name, subject, text_body, started_at, finished_at)
SELECT (CASE WHEN n % ($1 / 200) = 0 THEN 'draft' ELSE 'completed' END)::campaign_status,
    CASE WHEN n % ($1 / 200) = 0 THEN 'Rare ' ELSE 'Letter ' END || n, 'News', 'News.',
    CASE WHEN n % ($1 / 200) <> 0 THEN now() END, CASE WHEN n % ($1 / 200) <> 0 THEN now() END
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_campaign_zones
WITH made AS (
    INSERT INTO campaigns (id, status, name, subject, text_body, started_at, total_count)
    VALUES (1, 'active', 'Large', 'News', 'News.', now(), $1)
    RETURNING id
)
INSERT INTO campaign_zones (campaign_id, time_zone, fed_through, last_id)
SELECT id, zone, $1 * 3 / 4, $1
FROM made, unnest(ARRAY['', 'Asia/Tokyo', 'Europe/Berlin']) AS z(zone);

-- name: fill_campaign_recipients
INSERT INTO campaign_recipients (campaign_id, id, time_zone, state, delivery_id, email, custom_data)
OVERRIDING SYSTEM VALUE SELECT 1, n, (ARRAY['', 'Asia/Tokyo', 'Europe/Berlin'])[1 + n % 3],
    (CASE WHEN n > $1 * 3 / 4 THEN 'waiting' WHEN n % ($1 / 200) = 0 THEN 'suppressed' ELSE 'fed' END)::campaign_recipient_state,
    CASE WHEN n <= $1 * 3 / 4 AND n % ($1 / 200) <> 0 THEN n END, 'reader-' || n || '@domain-' || n % 500 || '.example',
    CASE WHEN n % ($1 / 200) = 0 THEN '{"plan": "rare"}' ELSE '{"plan": "usual"}' END::jsonb
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_click_events
-- Half are of one campaign, with twenty links; each person clicks twice.
INSERT INTO click_events (email_queue_id, campaign_id, clicked_at, is_machine, recipient_email, link_url)
SELECT n, 1 + n / 2 % 2, now() - interval '1 hour' * (1 - n / $1::float8), n % 10 = 0, 'reader-' || n / 2 || '@domain-' || n % 500 || '.example',
    CASE WHEN n % ($1 / 200) = 0 THEN 'https://example.org/rare' ELSE 'https://example.org/' || n % 20 END
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_deliveries
-- Two thirds are old, and have values that none of the newest third has. The newest tenth waits.
INSERT INTO deliveries (id, state, lane, created_at, finished_at, next_attempt_at, ladder, source, template_id, campaign_id,
    sender_account_id, reason, recipient_email, idempotency_key, tags, custom_data)
SELECT n, (CASE WHEN is_rare THEN 'failed' WHEN is_old AND n % 2 = 0 THEN 'suppressed' WHEN waits THEN 'queued' ELSE 'sent' END)::delivery_state,
    (CASE WHEN is_rare THEN 'auth' WHEN is_old THEN 'bulk' ELSE 'transactional' END)::delivery_lane, at,
    CASE WHEN is_rare OR NOT waits THEN at END, CASE WHEN NOT is_rare AND waits THEN at END, 'generic', kind, kind,
    number, number, kind, CASE WHEN is_rare THEN 'ada@rare.example' WHEN is_old THEN 'old@old.example'
        ELSE 'reader-' || n || '@domain-' || n % 500 || '.example' END, 'key-' || n,
    jsonb_build_object('all', '1', 'kind', CASE WHEN kind = 'usual' AND n % ($1 / 9000) = 1 THEN 'some' ELSE kind END),
    jsonb_build_object('all', jsonb_build_object('1', true), 'kind', jsonb_build_array(kind), 'campaign', number::text)
FROM generate_series(1, $1::bigint) AS n
CROSS JOIN LATERAL (
    SELECT n % ($1 / 200) = 0 AS is_rare, n <= $1 * 2 / 3 AS is_old, n > $1 * 9 / 10 AS waits,
        now() - interval '30 days' * (1 - n / $1::float8) AS at) AS placed
CROSS JOIN LATERAL (
    SELECT CASE WHEN is_rare THEN 'rare' WHEN is_old THEN 'old' ELSE 'usual' END AS kind,
        CASE WHEN is_rare THEN 77 WHEN is_old THEN 1 END AS number) AS chosen;

-- name: fill_other_recipients
-- Every fourth mail has a copy to an address of the same kind.
INSERT INTO other_recipients (delivery_id, kind, position, email)
SELECT id, 'cc', 0, recipient_email FROM deliveries WHERE id % 4 = 0 AND $1::bigint > 0;

-- name: fill_unsent_deliveries
INSERT INTO unsent_deliveries (id, state)
SELECT id, state FROM deliveries WHERE state IN ('failed', 'suppressed') AND $1::bigint > 0;

-- name: fill_due_deliveries
INSERT INTO due_deliveries (id, due_at, lane, channel)
SELECT id, next_attempt_at, lane, channel FROM deliveries WHERE state = 'queued' AND $1::bigint > 0;

-- name: fill_deliveries_given_up
INSERT INTO deliveries (id, state, finished_at, ladder, source, recipient_email, created_at)
SELECT n, 'dead_letter', now(), 'generic', 'shop', 'reader-' || n || '@domain-' || n % 500 || '.example',
    now() - interval '30 days' * (1 - n / $1::float8)
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_dead_letters
INSERT INTO dead_letters (delivery_id, reason, created_at)
SELECT n, (CASE WHEN n % ($1 / 200) = 0 THEN 'ambiguous' ELSE 'max_age' END)::dead_letter_reason,
    now() - interval '30 days' * (1 - n / $1::float8)
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_commands
INSERT INTO commands (transaction_id, occurred_at, type, command_id, data)
SELECT (n / 2)::text::xid8, now() - interval '30 days' * (1 - n / $1::float8), 'Order', 'command-' || n, '{}'
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_event_clock
-- A later epoch: all transaction ids below are in the past, and their events visible.
UPDATE event_clock SET epoch = 1 WHERE $1::bigint > 0;

-- name: fill_events
INSERT INTO events (position, transaction_id, horizon, occurred_at, type, tags, data)
SELECT n, (10 + n / 10)::text::xid8, '10', now() - interval '30 days' * (1 - n / $1::float8),
    CASE WHEN n % ($1 / 200) = 0 THEN 'Rare' WHEN n % 2 = 0 THEN 'Deposited' ELSE 'Withdrawn' END,
    ARRAY['bank=1', 'wallet=' || n / 20, CASE WHEN n % 2 = 0 THEN 'side=in' ELSE 'side=out' END], '{"amount": 5}'
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_event_tags
INSERT INTO event_tags (position, transaction_id, type, tag)
SELECT position, transaction_id, type, tag
FROM events, unnest(tags) AS carried(tag)
WHERE $1::bigint > 0;

-- name: fill_mass_actions
INSERT INTO mass_actions (before_id, kind, actor, filter, finished_at)
SELECT n, 'retry', 'cli:ada', '{}', now()
FROM generate_series(1, $1::bigint) AS n;

-- name: fill_erasures
INSERT INTO erasures (state, finished_at, requested_by, pseudonym)
SELECT 'done', now(), 'cli:ada', 'erased:' || n
FROM generate_series(1, $1::bigint) AS n;
