-- Why no sender account can take mail of a lane now: `quota` if those that send have used their quota of the day, `sender`
-- if none may send (suspended, paused by its health, or resting). NULL if one can, or if the lane has no accounts, because
-- then the relay takes its mail. An account that a person paused counts as none, as in lock_due_deliveries.
CREATE OR REPLACE FUNCTION sender_shortage(p_lane delivery_lane, p_now timestamptz) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN count(*) = 0 OR bool_or(may_send AND has_quota) THEN NULL
        WHEN bool_or(may_send) THEN 'quota'
        ELSE 'sender'
    END
    FROM (
        SELECT status IN ('active', 'warming_up', 'paused_limit_reached')
                AND (paused_until IS NULL OR paused_until <= p_now) AS may_send,
            counted_on < (p_now AT TIME ZONE 'UTC')::date -- its first claim of the day resets the count
                OR daily_sent < least(daily_limit, warmup_current_limit) AS has_quota
        FROM sender_accounts
        WHERE p_lane = ANY (lanes) AND paused_by IS DISTINCT FROM 'person'
    ) AS account
$$;
