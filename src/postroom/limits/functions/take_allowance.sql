-- Take mails from the allowance of a holder: at least p_least or none, up to p_wanted, and up to p_ahead more from a
-- quarter of the rest, so that little is left unspent in other processes near the limit. A NULL limit does not limit. p_returned
-- mails of the minute p_returned_minute that were taken and not spent are returned first; with p_wanted = 0 nothing is
-- taken. If too few are left, `exceeded` is rate or quota, and `wait` the time until that limit starts again.
CREATE OR REPLACE FUNCTION take_allowance(
    p_holder text, p_rate integer, p_quota integer, p_least integer, p_wanted integer,
    p_ahead integer DEFAULT 0, p_returned integer DEFAULT 0, p_returned_minute timestamptz DEFAULT NULL, p_now timestamptz DEFAULT clock_timestamp()
)
RETURNS TABLE (granted integer, minute timestamptz, valid_for interval, exceeded text, wait interval, unused integer)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_minute timestamptz;
    v_day    date;
    v_used   allowances;
    v_rate   integer;
    v_quota  integer;
BEGIN
    -- The lock serialises processes: each must see what the others have taken.
    SELECT * INTO v_used FROM allowances WHERE holder = p_holder FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO allowances (holder, minute, day)
        VALUES (p_holder, date_trunc('minute', p_now), (p_now AT TIME ZONE 'UTC')::date)
        ON CONFLICT DO NOTHING;
        SELECT * INTO v_used FROM allowances WHERE holder = p_holder FOR UPDATE; -- another process may have inserted it
    END IF;
    -- A time before the lock was waited for, or a clock that was set back, does not return to an earlier period.
    v_minute := greatest(date_trunc('minute', p_now), v_used.minute);
    v_day := greatest((p_now AT TIME ZONE 'UTC')::date, v_used.day);
    v_used.minute_used := greatest(CASE WHEN v_used.minute = v_minute THEN v_used.minute_used ELSE 0 END
        - CASE WHEN p_returned_minute = v_minute THEN p_returned ELSE 0 END, 0);
    v_used.day_used := greatest(CASE WHEN v_used.day = v_day THEN v_used.day_used ELSE 0 END
        - CASE WHEN (p_returned_minute AT TIME ZONE 'UTC')::date = v_day THEN p_returned ELSE 0 END, 0);
    v_rate := p_rate - v_used.minute_used;
    v_quota := p_quota - v_used.day_used;
    unused := greatest(least(v_rate, v_quota), 0);
    granted := CASE
        WHEN p_wanted = 0 OR unused < p_least THEN 0
        ELSE least(p_wanted, unused) + least(p_ahead, greatest(unused - p_wanted, 0) / 4)
    END;
    UPDATE allowances
    SET minute = v_minute, day = v_day, minute_used = v_used.minute_used + granted, day_used = v_used.day_used + granted
    WHERE holder = p_holder;
    minute := v_minute;
    valid_for := v_minute + interval '1 minute' - p_now;
    IF p_wanted > 0 AND granted = 0 THEN
        exceeded := CASE WHEN v_quota < p_least THEN 'quota' ELSE 'rate' END;
        wait := CASE exceeded WHEN 'quota' THEN (v_day + 1)::timestamp AT TIME ZONE 'UTC' - p_now ELSE valid_for END;
    END IF;
    RETURN NEXT;
END
$$;
