-- Suppressions for bench/feedback.py, made by the database itself: ten million through the front door take an hour.

-- name: fill
INSERT INTO suppressions (address, scope, reason, origin)
SELECT 'person' || n || '@example' || n % 1000 || '.org', 'all', 'hard_bounce', 'bench'
FROM generate_series($1::bigint, $2::bigint) AS n;

-- name: quiet
ALTER TABLE suppressions DISABLE TRIGGER USER;

-- name: loud
ALTER TABLE suppressions ENABLE TRIGGER USER;

-- name: settle
VACUUM ANALYZE suppressions;

-- name: check
SELECT count(*) FILTER (WHERE EXISTS (
    SELECT FROM suppressions AS s
    WHERE s.address = lower(r.email) AND (s.scope = 'all' OR r.lane = 'bulk')
        AND (s.until IS NULL OR s.until > now())
))
FROM (SELECT email, 'bulk' AS lane FROM unnest($1::text[]) AS given(email)) AS r;
