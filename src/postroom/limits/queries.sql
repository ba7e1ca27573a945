-- Limits of keys and of the room, and the mails counted against them.

-- name: delete_room_limits :exec
-- Remove the limits of the room.
DELETE FROM room_limits;

-- name: find_key_limits :maybe
-- The limits on the mail of a key; no row without one. Workers have no key, and no right to read keys.
SELECT name, expires_at, rate_per_minute, daily_quota, from_domains
FROM api_keys
WHERE id = :key_id AND (num_nonnulls(rate_per_minute, daily_quota) > 0 OR from_domains <> '{}');

-- name: find_room_limits :maybe
-- The limits of the room; no row without limits.
SELECT expires_at, rate_per_minute, daily_quota, from_domains
FROM room_limits;

-- name: list_use :many
-- The mails that holders have used in the current minute and UTC day.
SELECT holder,
    CASE WHEN minute = date_trunc('minute', clock_timestamp()) THEN minute_used ELSE 0 END AS minute_used,
    CASE WHEN day = (clock_timestamp() AT TIME ZONE 'UTC')::date THEN day_used ELSE 0 END AS day_used
FROM allowances
WHERE holder = ANY(:holders::text[]);

-- name: put_room_limits :exec
-- Set the limits of the room.
INSERT INTO room_limits (expires_at, rate_per_minute, daily_quota, from_domains)
VALUES (:expires_at, :rate_per_minute, :daily_quota, :from_domains)
ON CONFLICT (id) DO UPDATE
SET updated_at = now(), expires_at = excluded.expires_at, rate_per_minute = excluded.rate_per_minute,
    daily_quota = excluded.daily_quota, from_domains = excluded.from_domains;

-- name: take_allowance :one
-- Take mails from an allowance, and return those that were taken and not spent; see functions/take_allowance.sql.
SELECT granted, minute, valid_for, exceeded, wait, unused
FROM take_allowance(
    :holder, :rate::integer, :quota::integer, :least::integer, :wanted::integer, :ahead::integer,
    :returned::integer, :returned_minute::timestamptz);
