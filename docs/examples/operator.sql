-- Queries for operators. Open a session with `postroom psql`; every query here only reads.

-- Waiting mail per lane, and the oldest due time.
SELECT lane, state, count(*), min(next_attempt_at) AS oldest
FROM deliveries
WHERE state IN ('queued', 'rendered')
GROUP BY lane, state
ORDER BY lane, state;

-- Outcomes of the last hour's attempts.
SELECT transport, outcome, count(*), round(avg(extract(epoch FROM finished_at - started_at))::numeric, 3) AS seconds
FROM attempts
WHERE finished_at > now() - interval '1 hour'
GROUP BY transport, outcome
ORDER BY count(*) DESC;

-- Reasons for refused and deferred mail, in the server's own words.
SELECT outcome, code, enhanced_code, remote_host, left(reply_text, 80) AS said, count(*)
FROM attempts
WHERE finished_at > now() - interval '1 day' AND outcome IN ('failed', 'deferred', 'ambiguous')
GROUP BY outcome, code, enhanced_code, remote_host, said
ORDER BY count(*) DESC
LIMIT 20;

-- Domains that refuse our mail.
SELECT split_part(lower(email), '@', 2) AS domain, code, enhanced_code, count(*)
FROM delivery_recipients
WHERE outcome = 'refused'
GROUP BY domain, code, enhanced_code
ORDER BY count(*) DESC
LIMIT 20;

-- All mail to one address, newest first.
SELECT d.id, d.state, d.reason, d.created_at, d.finished_at, d.source, d.template_id, r.outcome, r.detail
FROM delivery_recipients AS r
JOIN deliveries AS d ON d.id = r.delivery_id
WHERE lower(r.email) = 'ada@example.org' AND r.kind <> 'reply_to'
ORDER BY d.id DESC
LIMIT 50;

-- Dead letters by reason and source: the number that a redrive would return.
SELECT l.reason, d.source, d.template_id, d.lane, count(*), min(l.created_at) AS first, max(l.created_at) AS last,
    count(*) FILTER (WHERE p.delivery_id IS NULL) AS without_body
FROM dead_letters AS l
JOIN deliveries AS d ON d.id = l.delivery_id
LEFT JOIN delivery_payloads AS p ON p.delivery_id = l.delivery_id
GROUP BY l.reason, d.source, d.template_id, d.lane
ORDER BY count(*) DESC;

-- Ambiguous attempts: mail that may have arrived twice, or not at all.
SELECT a.delivery_id, a.attempt_no, a.finished_at, a.remote_host, a.reply_text, d.state
FROM attempts AS a
LEFT JOIN deliveries AS d ON d.id = a.delivery_id
WHERE a.outcome = 'ambiguous' AND a.finished_at > now() - interval '7 days'
ORDER BY a.finished_at DESC;

-- Running workers and their lanes.
SELECT w.id, w.host, w.pid, w.seen_at, w.asleep, c.id AS claim, c.lane,
    cardinality(c.delivery_ids) AS size, c.started_through, c.expires_at
FROM workers AS w
LEFT JOIN claims AS c ON c.worker_id = w.id
ORDER BY w.id, c.id;

-- Manual actions.
SELECT at, actor, action, subject, after
FROM audit_log
ORDER BY id DESC
LIMIT 20;

-- Old transactions that slow down the queue.
SELECT pid, usename, application_name, state, now() - xact_start AS age
FROM pg_stat_activity
WHERE xact_start < now() - interval '1 minute' AND backend_type = 'client backend'
ORDER BY xact_start;
