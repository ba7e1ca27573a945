-- The statements of the outbox, in alphabetical order.

-- name: advance :maybe
-- Advance the progress of a publisher, if it is still where its leader read it and the leader is the same.
UPDATE outbox_topic_progress
SET last_transaction_id = :to_transaction_id::bigint::text::xid8, last_position = :to_position,
    last_published_at = CASE WHEN :published::boolean THEN now() ELSE last_published_at END,
    error_count = 0, last_error = NULL, failed_position = NULL, leader_heartbeat = now(), updated_at = now()
WHERE topic = :topic AND publisher = :publisher AND leader_instance = :instance
    AND last_transaction_id = :from_transaction_id::bigint::text::xid8 AND last_position = :from_position
RETURNING topic;

-- name: announce :exec
-- Hold a shared lock per publisher while this session lives: it shows the other instances that this one has it.
SELECT count(pg_try_advisory_lock_shared(outbox_lock_key('publisher', name)))
FROM unnest(:publishers::text[]) AS able(name);

-- name: beat :many
-- Update the heartbeat of a leader; returns the pairs it still leads.
UPDATE outbox_topic_progress
SET leader_heartbeat = now()
WHERE leader_instance = :instance
RETURNING topic, publisher;

-- name: break_stale_leads :exec
-- Terminate sessions that hold the leader's lock although heartbeat and last query are older than the limit.
SELECT pg_terminate_backend(holder.pid)
FROM (
    SELECT DISTINCT l.pid
    FROM outbox_topic_progress AS p
    JOIN pg_locks AS l ON l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.mode = 'ExclusiveLock'
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND ((l.classid::bigint << 32) | l.objid::bigint) = outbox_lock_key('leader', p.topic, p.publisher)
    JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE p.leader_heartbeat < now() - :silence::interval AND a.query_start < now() - :silence::interval
        AND l.pid <> pg_backend_pid()
) AS holder;

-- name: check_transaction :one
-- Fails in an aborted transaction, whose COMMIT would be a silent rollback.
SELECT true AS is_sound;

-- name: count_between :one
-- Events of a topic after one place and up to another, counted among the next :scan_limit events.
SELECT count(*) FILTER (WHERE next.is_matched AND next.is_inside) AS events,
    count(*) >= :scan_limit::bigint AND bool_and(next.is_inside) AS is_more
FROM outbox_topics AS t
CROSS JOIN LATERAL (
    SELECT scan.is_matched,
        (scan.transaction_id, scan.position) <= (:to_transaction_id::bigint::text::xid8, :to_position::bigint) AS is_inside
    FROM scan_topic(t, :from_transaction_id::bigint::text::xid8, :from_position::bigint, '9223372036854775807', :scan_limit)
        AS scan
) AS next
WHERE t.name = :topic;

-- name: delete_old_lag :exec
-- One bounded step of retention, oldest first.
DELETE FROM outbox_lag
WHERE (minute, topic, publisher) IN (
    SELECT minute, topic, publisher
    FROM outbox_lag
    WHERE minute < coalesce(:now::timestamptz, now()) - :retention::interval
    ORDER BY minute
    LIMIT :batch_limit
);

-- name: delete_topic :maybe
-- Delete a topic and the progress of its publishers; returns the follower ids of their leaders.
WITH gone AS (
    DELETE FROM outbox_topics WHERE name = :name RETURNING name
)
SELECT name, ARRAY(
    SELECT follower_id FROM outbox_topic_progress WHERE topic = gone.name AND follower_id IS NOT NULL
) AS follower_ids
FROM gone;

-- name: ensure_progress :maybe
-- Subscribe a publisher to a topic, from the beginning or from now; no row if it is subscribed already. From now is
-- after the last settled event, or at the horizon if no event is settled.
INSERT INTO outbox_topic_progress (topic, publisher, last_transaction_id, last_position)
SELECT :topic, :publisher,
    CASE WHEN :from_now::boolean THEN coalesce(last.transaction_id, event_horizon()) ELSE '0' END,
    CASE WHEN :from_now THEN coalesce(last.position, 0) ELSE 0 END
FROM (VALUES (true)) AS always(is_one)
LEFT JOIN LATERAL last_settled_place() AS last ON last.position IS NOT NULL
ON CONFLICT (topic, publisher) DO NOTHING
RETURNING topic;

-- name: find_next_event :maybe
-- The next event of a publisher. An unsettled event is excluded, because an older one may still be committed.
SELECT next.position, next.transaction_id::text::bigint AS transaction_id, next.type
FROM outbox_topic_progress AS p
JOIN outbox_topics AS t ON t.name = p.topic
CROSS JOIN LATERAL topic_next_event(t, p.last_transaction_id, p.last_position) AS next
WHERE p.topic = :topic AND p.publisher = :publisher AND next.position IS NOT NULL;

-- name: find_place :maybe
-- The place of the event at a position, or of the last one before it; and whether all events before it are visible.
-- Steps have no index by position alone: an operator's question may read their whole index by order.
SELECT position, transaction_id::text::bigint AS transaction_id,
    transaction_id < (SELECT event_horizon()) AS is_settled
FROM (
    (SELECT position, transaction_id FROM events WHERE position <= :position ORDER BY position DESC LIMIT 1)
    UNION ALL
    (SELECT position, transaction_id FROM all_steps WHERE position <= :position ORDER BY position DESC LIMIT 1)
) AS place
ORDER BY position DESC
LIMIT 1;

-- name: find_progress :maybe
-- The progress of one publisher; the row stays locked until the transaction ends, so that its leader cannot advance.
SELECT topic, publisher, status, last_position, last_transaction_id::text::bigint AS last_transaction_id, last_published_at,
    error_count, last_error, failed_position, leader_instance, leader_since, leader_heartbeat, follower_id, updated_at
FROM outbox_topic_progress
WHERE topic = :topic AND publisher = :publisher
FOR UPDATE;

-- name: find_reached :maybe
-- Compare a publisher's progress with a place; with its status and error.
SELECT (last_transaction_id, last_position) >= (:transaction_id::bigint::text::xid8, :position::bigint) AS is_reached,
    status, leader_instance, last_error, failed_position
FROM outbox_topic_progress
WHERE topic = :topic AND publisher = :publisher;

-- name: find_settled_end :one
-- The place of the last settled event.
SELECT coalesce(position, 0) AS position, coalesce(transaction_id::text::bigint, 0) AS transaction_id
FROM last_settled_place();

-- name: find_stall :maybe
-- The oldest transaction with an id, if it holds back a committed event.
SELECT holder.pid, a.datname::text AS database, a.application_name, a.state, p.gid AS prepared,
    coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)), 0)::float8 AS seconds
FROM (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS id) AS oldest
JOIN pg_locks AS holder ON holder.locktype = 'transactionid' AND holder.mode = 'ExclusiveLock' AND holder.granted
    AND holder.transactionid::text::bigint = oldest.id::text::bigint % 4294967296
LEFT JOIN pg_stat_activity AS a ON a.pid = holder.pid
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = holder.transactionid
WHERE last_event_transaction() >= event_horizon()
    AND holder.pid IS DISTINCT FROM pg_backend_pid()
LIMIT 1;

-- name: find_topic :maybe
-- One topic.
SELECT name, created_at, types, required_keys, any_keys, exact_tags FROM outbox_topics WHERE name = :name;

-- name: follow_topic :many
-- The next events of a publisher; see functions/follow_topic.sql.
SELECT status, leader_instance, last_transaction_id::text::bigint AS last_transaction_id, last_position,
    end_transaction_id::text::bigint AS end_transaction_id, end_position, scanned, has_unsettled,
    horizon::text::bigint AS horizon, newest::text::bigint AS newest, position,
    transaction_id::text::bigint AS transaction_id, occurred_at, type, tags, data, correlation_id, causation_id
FROM follow_topic(:topic, :publisher, :batch_limit::bigint, :scan_limit::bigint);

-- name: insert_topic :maybe
-- Create a topic; no row if the name exists.
INSERT INTO outbox_topics (name, types, required_keys, any_keys, exact_tags)
VALUES (:name, :types, :required_keys, :any_keys, :exact_tags)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: list_instances :many
-- The live instances and their publishers, from the locks of `announce`. Instances without a recent query are excluded.
SELECT l.pid, array_agg(able.name ORDER BY able.name) AS publishers
FROM (SELECT DISTINCT publisher AS name FROM outbox_topic_progress) AS able
JOIN pg_locks AS l ON l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.mode = 'ShareLock'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((l.classid::bigint << 32) | l.objid::bigint) = outbox_lock_key('publisher', able.name)
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE a.query_start IS NULL OR a.query_start > now() - :silence::interval
GROUP BY l.pid
ORDER BY l.pid;

-- name: list_lag :many
-- The largest lag of each publisher in each step of a period, from the oldest on; of one topic or publisher, or of all.
SELECT date_bin(:step::interval, minute, :begin::timestamptz) AS at, topic, publisher, max(events) AS events,
    max(seconds)::float8 AS seconds
FROM outbox_lag
WHERE minute >= :begin
    AND (:topic::text IS NULL OR topic = :topic)
    AND (:publisher::text IS NULL OR publisher = :publisher)
GROUP BY 1, topic, publisher
ORDER BY 1, topic, publisher;

-- name: list_pairs :many
-- Every topic and publisher.
SELECT topic, publisher FROM outbox_topic_progress ORDER BY topic, publisher;

-- name: list_progress :many
-- The progress and lag of each publisher. Events are counted up to a bound; seconds are the age of the oldest by its
-- occurred_at, because events have no append time.
SELECT p.topic, p.publisher, p.status, p.last_position, p.last_transaction_id::text::bigint AS last_transaction_id,
    p.last_published_at, p.error_count, p.last_error, p.failed_position,
    p.leader_instance, p.leader_since, p.leader_heartbeat, p.updated_at, lag.events AS lag_events,
    lag.scanned >= :scan_limit AS lag_is_more,
    coalesce(greatest(extract(epoch FROM now() - lag.oldest_at), 0), 0)::float8 AS lag_seconds
FROM outbox_topic_progress AS p
JOIN outbox_topics AS t ON t.name = p.topic
CROSS JOIN LATERAL (
    SELECT count(*) AS scanned, count(*) FILTER (WHERE next.is_matched) AS events,
        min(next.occurred_at) FILTER (WHERE next.is_matched) AS oldest_at
    FROM scan_topic(t, p.last_transaction_id, p.last_position, '9223372036854775807', :scan_limit) AS next
) AS lag
WHERE :topic::text IS NULL OR p.topic = :topic
ORDER BY p.topic, p.publisher;

-- name: list_topics :many
-- All topics with their publishers.
SELECT t.name, t.created_at, t.types, t.required_keys, t.any_keys, t.exact_tags,
    ARRAY(SELECT p.publisher FROM outbox_topic_progress AS p WHERE p.topic = t.name ORDER BY p.publisher) AS publishers
FROM outbox_topics AS t
ORDER BY t.name;

-- name: list_uses :many
-- The endpoints, rules and views that use this publisher of a topic, or the topic itself if no publisher is given.
SELECT 'webhook' AS publisher, id FROM webhook_endpoints
WHERE :topic::text = ANY (topics) AND coalesce(:publisher::text, 'webhook') = 'webhook'
UNION ALL
SELECT 'intake', id FROM outbox_mail_rules WHERE topic = :topic AND coalesce(:publisher, 'intake') = 'intake'
UNION ALL
SELECT publisher, NULL FROM outbox_topic_progress
WHERE topic = :topic AND publisher LIKE 'view:%' AND coalesce(:publisher, publisher) = publisher
ORDER BY publisher DESC, id;

-- name: move :exec
-- Set the position of a publisher for an operator; with :forgets, clear its errors.
UPDATE outbox_topic_progress
SET last_transaction_id = :transaction_id::bigint::text::xid8, last_position = :position, updated_at = now(),
    error_count = CASE WHEN :forgets::boolean THEN 0 ELSE error_count END,
    last_error = CASE WHEN NOT :forgets THEN last_error END,
    failed_position = CASE WHEN NOT :forgets THEN failed_position END
WHERE topic = :topic AND publisher = :publisher;

-- name: notify_outbox :exec
-- Notify the leaders that an operator changed something.
SELECT pg_notify(current_schema() || '_outbox', '');

-- name: prepare_seat :one
-- Set TCP keepalives so that the server notices within 11 seconds that the client is gone.
SELECT set_config('tcp_keepalives_idle', '5', false) AS idle, set_config('tcp_keepalives_interval', '2', false) AS between,
    set_config('tcp_keepalives_count', '3', false) AS times;

-- name: record_failure :maybe
-- Count a failed batch; after too many consecutive ones the publisher is FAILED until an operator resumes it.
UPDATE outbox_topic_progress
SET error_count = error_count + 1, last_error = :error, failed_position = :position, updated_at = now(),
    status = CASE WHEN status = 'ACTIVE' AND error_count + 1 >= :most::integer THEN 'FAILED' ELSE status END
WHERE topic = :topic AND publisher = :publisher AND leader_instance = :instance
RETURNING status, error_count;

-- name: record_lag :exec
-- Record the lag of each publisher in this minute; the first process that measures it does.
INSERT INTO outbox_lag (minute, topic, publisher, events, seconds)
SELECT date_trunc('minute', now()), lag.topic, lag.publisher, lag.events, least(lag.seconds, 1e9)
FROM unnest(:topic::text[], :publisher::text[], :events::integer[], :seconds::float8[])
    AS lag(topic, publisher, events, seconds)
ON CONFLICT DO NOTHING;

-- name: release_lead :exec
-- Give up the lead, on the session that holds the lock.
WITH released AS (
    UPDATE outbox_topic_progress
    SET leader_instance = NULL, leader_since = NULL, leader_heartbeat = NULL
    WHERE topic = :topic AND publisher = :publisher AND leader_instance = :instance
)
SELECT pg_advisory_unlock(outbox_lock_key('leader', :topic, :publisher));

-- name: remove_progress :maybe
-- Unsubscribe a publisher from a topic; returns the follower id of its leaders.
DELETE FROM outbox_topic_progress WHERE topic = :topic AND publisher = :publisher RETURNING topic, follower_id;

-- name: save_follower :exec
-- Keep the follower id for the next leader.
UPDATE outbox_topic_progress SET follower_id = :follower_id WHERE topic = :topic AND publisher = :publisher;

-- name: save_topic :exec
-- Create a topic, or change its conditions.
INSERT INTO outbox_topics (name, types, required_keys, any_keys, exact_tags)
VALUES (:name, :types, :required_keys, :any_keys, :exact_tags)
ON CONFLICT (name) DO UPDATE
SET types = excluded.types, required_keys = excluded.required_keys, any_keys = excluded.any_keys,
    exact_tags = excluded.exact_tags;

-- name: set_status :exec
-- Pause or resume. Resuming clears earlier errors; a paused publisher keeps them.
UPDATE outbox_topic_progress
SET status = :status, updated_at = now(),
    error_count = CASE WHEN :status = 'ACTIVE' THEN 0 ELSE error_count END,
    last_error = CASE WHEN :status <> 'ACTIVE' THEN last_error END,
    failed_position = CASE WHEN :status <> 'ACTIVE' THEN failed_position END
WHERE topic = :topic AND publisher = :publisher;

-- name: take_lead :maybe
-- Record the leader; the session already holds the lock.
UPDATE outbox_topic_progress
SET leader_instance = :instance, leader_since = now(), leader_heartbeat = now()
WHERE topic = :topic AND publisher = :publisher
RETURNING follower_id;

-- name: try_lock :one
-- Try to take the lock of a topic and publisher; held until released or until this session ends.
SELECT pg_try_advisory_lock(outbox_lock_key('leader', :topic, :publisher)) AS is_locked;
