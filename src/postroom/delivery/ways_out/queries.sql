-- Statements of the ways out, in alphabetical order. Those that depend on the time take :now; with NULL they use the
-- database's clock.

-- name: count_workers :one
-- The number of workers that said something lately.
SELECT count(*) AS workers
FROM workers
WHERE seen_at > coalesce(:now::timestamptz, now()) - :patience::interval;

-- name: end_outage :maybe
-- Take note that a relay answers again after a reported outage; the row goes to one process, which logs it.
UPDATE ways_out
SET is_reported = false
WHERE name = :name AND is_reported AND failing_since IS NULL
RETURNING name;

-- name: list_new_outages :many
-- Reported outages that began after the last notice about outages.
SELECT w.name, w.last_sent_at, w.failing_since, w.failures, w.logins_refused, w.stage, w.detail,
    w.sender_account_id IS NULL AS is_relay
FROM ways_out AS w
WHERE w.is_reported AND w.failing_since <= coalesce(:now::timestamptz, now())
    AND w.failing_since > (SELECT sent_at FROM admin_notices WHERE kind = 'relay')
ORDER BY w.name;

-- name: list_ways_out :many
-- The ways out in use, by name: sender accounts that no person has paused, and relays that a worker still probes or that
-- answered the last attempt.
SELECT w.name, w.last_sent_at, w.failing_since, w.failures, w.logins_refused, w.stage, w.detail,
    w.sender_account_id IS NULL AS is_relay
FROM ways_out AS w
LEFT JOIN sender_accounts AS a ON a.id = w.sender_account_id
WHERE CASE
    WHEN w.sender_account_id IS NOT NULL THEN a.id IS NOT NULL AND a.paused_by IS DISTINCT FROM 'person'
    ELSE w.failing_since IS NULL
        OR greatest(w.failing_since, w.probed_at) > coalesce(:now::timestamptz, now()) - :patience::interval
END
ORDER BY w.name
LIMIT 1000;

-- name: measure_oldest :many
-- For each lane and reason to wait, the oldest unfinished mail and when it was to leave. Mail that is scheduled for later
-- does not count. Looked at are the mail that is due first, the oldest hundred that were deferred, and the mail that its
-- workers have had for longest: so an old mail that is retried for days does not hide that no worker runs.
SELECT lane.name::text AS lane, found.waits_for, min(found.since) AS since
FROM unnest(enum_range(NULL::delivery_lane)) AS lane(name)
CROSS JOIN LATERAL (
    (SELECT due.since, waits_for(due.id, coalesce(:now::timestamptz, now())) AS waits_for
    FROM (
        SELECT w.id, w.due_at AS since
        FROM due_deliveries AS w
        WHERE w.lane = lane.name AND w.channel = 'email' AND w.due_at <= coalesce(:now::timestamptz, now())
        ORDER BY w.due_at, w.id
        LIMIT 1
    ) AS due)
    UNION ALL
    (SELECT deferred.since, waits_for(deferred.id, coalesce(:now::timestamptz, now()))
    FROM (
        SELECT f.id, f.since
        FROM deferred_deliveries AS f
        WHERE f.lane = lane.name
        ORDER BY f.since, f.id
        LIMIT 100
    ) AS deferred
    WHERE EXISTS (
        SELECT FROM deliveries AS d
        WHERE d.id = deferred.id AND d.next_attempt_at > coalesce(:now::timestamptz, now())
        LIMIT 1))
    UNION ALL
    (SELECT held.since, 'reply'
    FROM (SELECT id, claimed_at, delivery_ids FROM claims AS c WHERE c.lane = lane.name ORDER BY c.claimed_at LIMIT 20) AS c
    CROSS JOIN LATERAL (
        SELECT greatest(d.dated_at, c.claimed_at) AS since
        FROM unnest(c.delivery_ids) AS i(id)
        JOIN deliveries AS d ON d.id = i.id
        WHERE d.claim_id = c.id AND d.channel = 'email'
        LIMIT 1
    ) AS held)
) AS found
WHERE found.waits_for IS NOT NULL -- a worker took it meanwhile
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: record_attempts :exec
-- Add what attempts found since the last call, for each way out. `is_reached`: an attempt got as far as offering a mail, so
-- earlier failures are over; `failures` and `logins_refused` count those after it. Two workers write the same rows, so they
-- are locked in the order of their names; of two that write a first row at once, the other one writes it next time.
WITH input AS MATERIALIZED (
    SELECT coalesce(a.email, i.name) AS name, i.sender_account_id, i.is_reached, i.failures, i.logins_refused, i.stage, i.detail,
        CASE WHEN i.is_sent THEN coalesce(:now::timestamptz, now()) END AS sent_at,
        CASE WHEN i.failures > 0 THEN coalesce(:now::timestamptz, now()) END AS failed_at
    FROM unnest(
        :name::text[], :sender_account_id::bigint[], :is_sent::boolean[], :is_reached::boolean[], :failures::bigint[],
        :logins_refused::bigint[], :stage::text[], :detail::text[]
    ) AS i(name, sender_account_id, is_sent, is_reached, failures, logins_refused, stage, detail)
    LEFT JOIN sender_accounts AS a ON a.id = i.sender_account_id
    WHERE i.sender_account_id IS NULL OR a.id IS NOT NULL
),
known AS MATERIALIZED (
    SELECT name
    FROM ways_out
    WHERE name IN (SELECT name FROM input)
    ORDER BY name
    FOR UPDATE
),
changed AS (
    UPDATE ways_out AS w
    SET sender_account_id = i.sender_account_id,
        last_sent_at = coalesce(i.sent_at, w.last_sent_at),
        failing_since = CASE WHEN i.is_reached THEN i.failed_at ELSE coalesce(w.failing_since, i.failed_at) END,
        failures = i.failures + CASE WHEN i.is_reached THEN 0 ELSE w.failures END,
        logins_refused = i.logins_refused + CASE WHEN i.is_reached THEN 0 ELSE w.logins_refused END,
        stage = CASE WHEN i.is_reached THEN i.stage ELSE coalesce(i.stage, w.stage) END,
        detail = CASE WHEN i.is_reached THEN i.detail ELSE coalesce(i.detail, w.detail) END
    FROM input AS i
    JOIN known USING (name)
    WHERE w.name = i.name
)
INSERT INTO ways_out (name, sender_account_id, last_sent_at, failing_since, failures, logins_refused, stage, detail)
SELECT name, sender_account_id, sent_at, failed_at, failures, logins_refused, stage, detail
FROM input
WHERE name NOT IN (SELECT name FROM known)
ON CONFLICT (name) DO NOTHING;

-- name: record_probe :maybe
-- Write the result of a probe. `stage` is NULL if the relay answers. A row if this probe makes the outage known: every
-- attempt has failed for a while, and so has the probe.
UPDATE ways_out AS w
SET failing_since = CASE WHEN :stage::text IS NOT NULL THEN w.failing_since END,
    failures = CASE WHEN :stage::text IS NOT NULL THEN w.failures ELSE 0 END,
    logins_refused = CASE WHEN :stage::text IS NOT NULL THEN w.logins_refused ELSE 0 END,
    stage = :stage,
    detail = :detail::text,
    is_reported = old.is_reported OR :stage::text IS NOT NULL
FROM (SELECT name, is_reported FROM ways_out WHERE name = :name FOR UPDATE) AS old
WHERE w.name = old.name AND w.failing_since IS NOT NULL
RETURNING w.failures, w.failing_since, NOT old.is_reported AND :stage::text IS NOT NULL AS is_new;

-- name: release_unreached :one
-- Make one slice of deferred mail due, in the order of its age: mail of a lane that the relay never saw, because its last
-- attempt could not connect, secure the connection or log in. None, if the relay fails again. `after_since` and `after_id`:
-- where the next slice begins.
WITH slice AS MATERIALIZED (
    SELECT f.id, f.since
    FROM deferred_deliveries AS f
    WHERE f.lane = :lane::text::delivery_lane
        AND (f.since, f.id) > (coalesce(:after_since::timestamptz, '-infinity'), coalesce(:after_id::bigint, 0))
        AND NOT EXISTS (SELECT FROM ways_out AS w WHERE w.name = :name AND w.failing_since IS NOT NULL)
    ORDER BY f.since, f.id
    LIMIT :batch_limit
),
unreached AS MATERIALIZED (
    SELECT locked.id
    FROM slice
    CROSS JOIN LATERAL (
        SELECT a.stage FROM attempts AS a WHERE a.delivery_id = slice.id
        ORDER BY a.attempt_no DESC, a.finished_at DESC
        LIMIT 1
    ) AS last
    CROSS JOIN LATERAL ( -- as a join, a cached plan would read all deliveries into a hash
        SELECT d.id
        FROM deliveries AS d
        WHERE d.id = slice.id AND d.sender_account_id IS NULL AND d.next_attempt_at > coalesce(:now::timestamptz, now())
            AND d.next_attempt_at < '2900-01-01 00:00Z' -- later: held, because its campaign is paused
        LIMIT 1
        FOR UPDATE SKIP LOCKED -- a worker claims the others now
    ) AS locked
    WHERE last.stage IN ('connect', 'tls', 'login')
),
released AS (
    UPDATE deliveries
    SET next_attempt_at = coalesce(:now::timestamptz, now())
    WHERE id = ANY (ARRAY(SELECT id FROM unreached)) AND state IN ('queued', 'rendered')
    RETURNING id
)
SELECT (SELECT count(*) FROM slice) AS seen, (SELECT count(*) FROM released) AS released,
    (SELECT since FROM slice ORDER BY since DESC, id DESC LIMIT 1) AS after_since,
    (SELECT id FROM slice ORDER BY since DESC, id DESC LIMIT 1) AS after_id;

-- name: take_probe :maybe
-- The relay, if every attempt has failed for a while and no process has probed it lately; this process probes it now.
UPDATE ways_out
SET probed_at = coalesce(:now::timestamptz, now())
WHERE name = :name AND failing_since <= coalesce(:now::timestamptz, now()) - :patience::interval
    AND (probed_at IS NULL OR probed_at <= coalesce(:now::timestamptz, now())
        - CASE WHEN stage = 'login' THEN :login_interval::interval ELSE :interval::interval END)
RETURNING name;
