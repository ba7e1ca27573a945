-- Statements of `postroom doctor`. They only read, and are fast whatever the size of the queue.

-- name: count_senders :one
-- Sender accounts: all, those that send, those that wait for a person.
SELECT count(*) AS accounts,
    count(*) FILTER (WHERE status IN ('active', 'warming_up', 'paused_limit_reached')) AS sending,
    string_agg(email || ' is ' || status || coalesce(' (' || status_reason || ')', ''), '; ' ORDER BY id)
        FILTER (WHERE status = 'suspended' OR (status = 'paused' AND paused_by = 'health')) AS stopped
FROM sender_accounts;

-- name: count_stuck :one
-- Waiting mail that nothing will take. `missing`: deliveries that wait without a row in the queue, among the first and the last
-- :bound. `orphans`: rows of the queue whose delivery does not wait, among the first :bound that are due of each lane; they
-- stay there until they are repaired. Campaigns: with mail that contradicts their status, and the newest completed ones with
-- people who were never queued.
SELECT
    (
        SELECT count(*)
        FROM (
            (SELECT id, next_attempt_at FROM deliveries ORDER BY id LIMIT :bound::bigint)
            UNION
            (SELECT id, next_attempt_at FROM deliveries ORDER BY id DESC LIMIT :bound)
        ) AS d
        WHERE d.next_attempt_at IS NOT NULL
            AND (SELECT w.id FROM due_deliveries AS w WHERE w.id = d.id) IS NULL -- not joined: one look-up for each
    ) AS missing,
    (
        SELECT count(*)
        FROM unnest(enum_range(NULL::delivery_lane)) AS lane(name),
            unnest(enum_range(NULL::delivery_channel)) AS channel(name),
            LATERAL (
                SELECT w.id
                FROM due_deliveries AS w
                WHERE w.lane = lane.name AND w.channel = channel.name AND w.due_at < now() - :patience::interval
                ORDER BY w.due_at, w.id
                LIMIT :bound
            ) AS first
        WHERE (SELECT d.id FROM deliveries AS d WHERE d.id = first.id AND d.next_attempt_at IS NOT NULL) IS NULL
    ) AS orphans,
    ARRAY(
        SELECT u.id
        FROM unfinished_campaigns() AS u
        JOIN campaigns AS c ON c.id = u.id
        WHERE u.has_stray_mail AND c.updated_at < now() - :patience
        ORDER BY u.id
        LIMIT 5
    ) AS stray_campaigns,
    ARRAY(
        SELECT c.id
        FROM (SELECT id FROM campaigns WHERE status = 'completed' ORDER BY id DESC LIMIT :bound) AS c
        WHERE EXISTS (SELECT FROM campaign_zones AS z WHERE z.campaign_id = c.id AND z.fed_through < z.last_id)
        ORDER BY c.id
        LIMIT 5
    ) AS cut_campaigns;

-- name: describe_room_limits :maybe
-- The limits of the room, the mails counted today, and whether mail is due.
SELECT l.daily_quota, l.expires_at, coalesce(l.expires_at <= now(), false) AS is_closed,
    coalesce((SELECT day_used FROM allowances WHERE holder = 'room' AND day = (now() AT TIME ZONE 'UTC')::date), 0) AS accepted,
    coalesce((SELECT day_used FROM allowances WHERE holder = 'sent' AND day = (now() AT TIME ZONE 'UTC')::date), 0) AS sent,
    EXISTS (SELECT FROM due_deliveries WHERE channel = 'email' AND due_at <= now()) AS is_waiting
FROM room_limits AS l;

-- name: describe_server :one
-- Version, clock and place of this session.
SELECT
    current_setting('server_version_num')::integer / 10000 AS major,
    current_setting('server_version_num')::integer % 10000 AS minor,
    current_setting('server_version') AS version,
    clock_timestamp() AS at,
    current_schema() AS schema,
    current_user AS role,
    pg_is_in_recovery() AS is_replica,
    current_setting('max_connections')::integer AS max_connections,
    (SELECT count(*) FROM pg_stat_activity) AS connections;

-- name: find_waiting_tokens :one
-- Tokens that a collector could take and has not, counted up to a bound, and how long the first has waited.
SELECT count(*) AS waiting, coalesce(now() - to_timestamp(least(min(created_at), 253370764800)), '0') AS late
FROM (
    SELECT tokens.created_at
    FROM tokens, jobs
    WHERE job_type = 'mailroom'
        AND (tokens.transaction_id, tokens.id) > (jobs.last_transaction_id, jobs.cursor_id)
        AND tokens.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY tokens.transaction_id, tokens.id
    LIMIT :bound
) AS first;

-- name: identify_backend :one
-- The server process that runs this statement; a pooler tells its clients another one.
SELECT pg_backend_pid() AS pid;

-- name: list_bloated_indexes :many
-- B-trees that are much larger than their entries need, the most wasteful first. The need is estimated from the average
-- widths of the columns in the planner's statistics: 8 bytes of header and 4 of pointer per entry, pages 90 % full.
-- Deduplicated entries need less, so the estimate is rather too high, and the waste rather too low.
WITH sized AS (
    SELECT c.oid, c.relname, c.reltuples, pg_relation_size(c.oid) AS bytes,
        (SELECT sum(coalesce(s.avg_width, 16))
            FROM pg_attribute AS a
            LEFT JOIN pg_attribute AS source ON source.attrelid = i.indrelid AND source.attnum = i.indkey[a.attnum - 1]
            LEFT JOIN pg_stats AS s ON s.schemaname = current_schema()
                AND s.tablename = CASE WHEN i.indkey[a.attnum - 1] = 0 THEN c.relname ELSE t.relname END
                AND s.attname = CASE WHEN i.indkey[a.attnum - 1] = 0 THEN a.attname ELSE source.attname END
            WHERE a.attrelid = c.oid) AS width
    FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_class AS t ON t.oid = i.indrelid
    JOIN pg_am AS method ON method.oid = c.relam
    JOIN pg_stat_user_tables AS stats ON stats.relid = i.indrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND method.amname = 'btree' AND c.relkind = 'i'
        -- the count of entries and the widths are as old as the last ANALYZE
        AND coalesce(stats.last_analyze, stats.last_autoanalyze) IS NOT NULL
        AND stats.n_mod_since_analyze <= 1000 + 0.2 * stats.n_live_tup
        AND pg_relation_size(c.oid) >= :least_waste::bigint
),
estimated AS (
    SELECT relname, bytes, bytes - 8192 * (2 + ceil(reltuples * (12 + 8 * ceil(width / 8.0)) / (0.9 * 8152)))::bigint AS waste
    FROM sized
)
SELECT current_schema()::text AS room, relname::text AS name, bytes, waste
FROM estimated
WHERE waste >= :least_waste::bigint AND waste >= :least_share::float8 * bytes
ORDER BY waste DESC;

-- name: list_expiring_keys :many
-- Keys that expire within a time, or expired within it, and were not revoked.
SELECT id, name, expires_at - now() AS expires_in
FROM api_keys
WHERE revoked_at IS NULL AND expires_at BETWEEN now() - :patience::interval AND now() + :patience::interval
ORDER BY expires_at, id
LIMIT 10;

-- name: list_short_lanes :many
-- Lanes without a sender account that can take mail now, and how much of their mail is due, counted up to a bound.
SELECT lane.name::text AS lane, shortage.reason, waiting.mails
FROM unnest(enum_range(NULL::delivery_lane)) AS lane (name)
CROSS JOIN LATERAL (SELECT sender_shortage(lane.name, now()) AS reason) AS shortage
CROSS JOIN LATERAL (
    SELECT count(*) AS mails
    FROM (
        SELECT
        FROM due_deliveries AS w
        WHERE w.lane = lane.name AND w.channel = 'email' AND w.due_at <= now()
        LIMIT :bound
    ) AS first
) AS waiting
WHERE shortage.reason IS NOT NULL
ORDER BY lane.name;

-- name: list_long_transactions :many
-- Transactions old enough to keep dead rows of the queue alive and every cursor waiting, oldest first.
SELECT
    pid,
    clock_timestamp() - xact_start AS age,
    coalesce(nullif(application_name, ''), 'unnamed') AS application,
    coalesce(usename, 'unknown')::text AS role,
    coalesce(state, 'unknown') AS state
FROM pg_stat_activity
WHERE xact_start < clock_timestamp() - :patience::interval
    AND backend_type = 'client backend'
    AND pid <> pg_backend_pid()
    AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL OR state LIKE 'idle in transaction%')
ORDER BY xact_start
LIMIT 5;

-- name: list_months_without_partition :many
-- Months, from this one on, of which the default partition of a table holds rows: while it does, they get none of their
-- own. Up to a bound of rows is looked at.
SELECT DISTINCT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM') AS month, table_name
FROM date_trunc('month', now(), 'UTC') AS month (begin)
CROSS JOIN LATERAL (
    (SELECT 'attempts' AS table_name, finished_at AS at FROM attempts_default WHERE finished_at >= begin LIMIT :bound)
    UNION ALL
    (SELECT 'delivery_steps', at FROM delivery_steps_default WHERE at >= begin LIMIT :bound)
    UNION ALL
    (SELECT 'open_events', opened_at FROM open_events_default WHERE opened_at >= begin LIMIT :bound)
    UNION ALL
    (SELECT 'click_events', clicked_at FROM click_events_default WHERE clicked_at >= begin LIMIT :bound)
) AS outside
ORDER BY 1, 2
LIMIT 5;

-- name: list_seals :many
-- The keys that secrets of this room are sealed with: of webhooks, of operators, and of senders whose credentials AWS KMS
-- does not keep.
SELECT DISTINCT 'webhooks' AS owner, unnest(array_remove(ARRAY[secret_key_id, previous_key_id], NULL)) AS key_id
FROM webhook_endpoints
UNION
SELECT DISTINCT 'senders', split_part(sealed, ':', 2)
FROM sender_accounts, unnest(ARRAY[smtp_password_encrypted, credentials_encrypted]) AS sealed
WHERE sealed LIKE 'local:%'
UNION
SELECT DISTINCT 'operators', totp_key_id
FROM operators
WHERE totp_key_id IS NOT NULL
ORDER BY owner DESC, key_id;

-- name: list_stalled_claims :many
-- Leases that ran out and that no worker has taken over.
SELECT id, lane::text AS lane, cardinality(delivery_ids) AS size, clock_timestamp() - expires_at AS late
FROM claims
WHERE expires_at < clock_timestamp() - :patience::interval
ORDER BY expires_at
LIMIT 5;

-- name: list_room_processes :many
-- The processes that serve the room: those that are registered, and workers in which it sleeps.
SELECT DISTINCT command, host, pid
FROM (
    SELECT command, host, pid, seen_at FROM processes
    UNION ALL
    SELECT 'work', host, pid, seen_at FROM workers
) AS process
WHERE seen_at > clock_timestamp() - :patience::interval
ORDER BY command, host, pid;

-- name: list_troubled_pairs :many
-- Publishers that have failed, are failing, or have no leader; the worst first.
SELECT topic || '/' || publisher AS pair, status = 'FAILED' AS has_failed, last_error
FROM outbox_topic_progress
WHERE status = 'FAILED'
    OR (status = 'ACTIVE' AND (error_count > 0 OR coalesce(leader_heartbeat < now() - :silence::interval, true)))
ORDER BY status = 'FAILED' DESC, last_error IS NULL, topic, publisher
LIMIT 5;

-- name: list_unlisted_proxies :many
-- Private addresses that sent X-Forwarded-For to running processes, which ignored it.
SELECT DISTINCT unlisted_proxy AS address
FROM processes
WHERE unlisted_proxy IS NOT NULL AND seen_at > clock_timestamp() - :patience::interval
ORDER BY address
LIMIT 10;

-- name: list_workers_seen :many
-- Workers that said something lately.
SELECT id, pid, host, seen_at
FROM workers
WHERE seen_at > clock_timestamp() - :patience::interval
ORDER BY id;
