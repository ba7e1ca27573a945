-- Start a new day for every account that has not started it: reset counters, clear the pause of a reached limit, and
-- advance the warm-up if the day counts. Called at the first use of a day, so no host has to run at midnight.
--
-- A day of warm-up counts if at least half of the allowed mails were sent: a quiet or paused day does not show that the
-- mailbox can do more. A completed stage advances if fewer than 2 % of its mails bounced; otherwise it starts again.
-- After the last stage the account is active, and only its daily limit applies. The rows are locked in the order of
-- their ids, so that two hosts at midnight wait for each other instead of deadlocking, and the second finds the day
-- begun.
CREATE OR REPLACE FUNCTION roll_sender_days(p_now timestamptz) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    v_today  date := (p_now AT TIME ZONE 'UTC')::date;
    v_rolled integer;
BEGIN
    IF NOT EXISTS (SELECT FROM sender_accounts WHERE counted_on < v_today) THEN
        RETURN 0; -- every claim but the first of a day
    END IF;
    WITH yesterday AS (
        SELECT id, warmup_stage, warmup_limits, warmup_days_per_stage, warmup_stage_sent + daily_sent AS stage_sent, warmup_stage_bounces + daily_bounces AS stage_bounces,
            warmup_days + CASE WHEN daily_sent * 2 >= least(daily_limit, warmup_current_limit) THEN 1 ELSE 0 END AS days
        FROM sender_accounts
        WHERE counted_on < v_today
        ORDER BY id
        FOR UPDATE
    ),
    judged AS (
        SELECT y.*,
            days >= warmup_days_per_stage AS is_over,
            CASE
                WHEN days < warmup_days_per_stage OR stage_bounces * 50 >= stage_sent THEN warmup_stage
                WHEN warmup_stage < cardinality(warmup_limits) THEN warmup_stage + 1
                ELSE 0
            END AS stage
        FROM yesterday AS y -- the locked rows: a join with the table would read it as it was before the wait for them
    )
    UPDATE sender_accounts AS a
    SET counted_on = v_today,
        last_reset_at = p_now,
        daily_sent = 0,
        daily_bounces = 0,
        daily_errors = 0,
        resume_status = NULL,
        status = CASE
            WHEN a.status IN ('warming_up', 'paused_limit_reached') THEN
                CASE WHEN a.warmup_stage > 0 AND j.stage > 0 THEN 'warming_up' ELSE 'active' END
            ELSE a.status
        END,
        warmup_stage = CASE WHEN a.warmup_stage > 0 THEN j.stage ELSE 0 END,
        warmup_current_limit = CASE WHEN a.warmup_stage > 0 AND j.stage > 0 THEN a.warmup_limits[j.stage] END,
        warmup_days = CASE WHEN a.warmup_stage > 0 AND NOT j.is_over THEN j.days ELSE 0 END,
        warmup_stage_sent = CASE WHEN a.warmup_stage > 0 AND NOT j.is_over THEN j.stage_sent ELSE 0 END,
        warmup_stage_bounces = CASE WHEN a.warmup_stage > 0 AND NOT j.is_over THEN j.stage_bounces ELSE 0 END
    FROM judged AS j
    WHERE a.id = j.id;
    GET DIAGNOSTICS v_rolled = ROW_COUNT;
    DELETE FROM sender_health WHERE bucket < p_now - interval '1 day';
    RETURN v_rolled;
END
$$;
