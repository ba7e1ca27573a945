-- Test data of the benchmark of the archive.

-- name: add_attempts :exec
-- A month of attempts, as they look after SMTP.
INSERT INTO attempts (
    delivery_id, attempt_no, outcome, lane, code, claim_id, started_at, finished_at, transport, stage, enhanced_code,
    remote_host, tls, reply_text, domain
)
SELECT n, 1, 'sent', 'bulk', 250, n / 500, '2020-01-01Z'::timestamptz + n * interval '2 s',
    '2020-01-01Z'::timestamptz + n * interval '2 s' + interval '80 ms', 'smtp', 'final', '2.0.0',
    'mx' || n % 40 || '.example.org:25', 'TLSv1.3', '2.0.0 Ok: queued as ' || upper(left(md5(n::text), 12)), 'example.org'
FROM generate_series(1, :count::bigint) AS n;

-- name: add_finished :exec
-- Deliveries that ended long enough ago for bodies and rows alike.
INSERT INTO deliveries (state, lane, created_at, dated_at, finished_at, attempt_count, ladder, source, recipient_email,
    recipient_outcome)
SELECT 'sent', 'bulk', now() - interval '9 days', now() - interval '9 days', now() - interval '8 days' - n * interval '1 ms', 1,
    'generic', 'bench', 'p' || n || '@example.org', 'delivered'
FROM generate_series(1, :count::bigint) AS n;

-- name: add_finished_bodies :exec
-- What they said: two kilobytes each.
INSERT INTO delivery_payloads (delivery_id, subject, text_body)
SELECT id, 'Hello', (SELECT string_agg(md5(id::text || n::text), ' ') FROM generate_series(1, 60) AS n)
FROM deliveries
WHERE state = 'sent';

-- name: make_month :exec
-- January 2020, long closed.
CREATE TABLE attempts_2020_01 PARTITION OF attempts FOR VALUES FROM ('2020-01-01Z') TO ('2020-03-01Z');
