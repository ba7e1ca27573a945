-- Return the quota reserved for mails that were not attempted, one entry per mail. A reservation of an earlier day
-- expired with that day's counters. An account paused at its limit becomes active again.
CREATE OR REPLACE FUNCTION return_sender_quota(p_account_ids bigint[], p_reserved_on date[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF p_account_ids IS NULL THEN
        RETURN;
    END IF;
    -- one lock order prevents deadlocks
    PERFORM FROM sender_accounts WHERE id = ANY (p_account_ids) ORDER BY id FOR UPDATE;
    UPDATE sender_accounts AS a
    SET daily_sent = greatest(a.daily_sent - r.count, 0),
        status = coalesce(a.resume_status, a.status),
        resume_status = NULL
    FROM (
        SELECT id, reserved_on, count(*)::integer AS count
        FROM unnest(p_account_ids, p_reserved_on) AS i(id, reserved_on)
        GROUP BY id, reserved_on
    ) AS r
    WHERE a.id = r.id AND a.counted_on = r.reserved_on;
END
$$;
