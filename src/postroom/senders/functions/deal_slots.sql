-- Deal out the slots that accounts grant, round robin: the first of each account, then the second of each, and so on.
CREATE OR REPLACE FUNCTION deal_slots(p_account_ids bigint[], p_granted integer[], p_waits interval[], p_delays interval[])
RETURNS TABLE (place bigint, account_id bigint, start_in interval, send_delay interval)
LANGUAGE sql IMMUTABLE
ROWS 100
AS $$
    SELECT row_number() OVER (ORDER BY round, position), account_id, wait + round * send_delay, send_delay
    FROM unnest(p_account_ids, p_granted, p_waits, p_delays) WITH ORDINALITY
        AS a(account_id, granted, wait, send_delay, position),
        generate_series(0, granted - 1) AS round
$$;
