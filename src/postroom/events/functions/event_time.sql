-- Check the time of an event, or raise PR001: infinity, and years before 1 or after 9999, cannot be read by all
-- clients. NULL means now and is not checked.
CREATE OR REPLACE FUNCTION event_time(p_occurred_at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    IF p_occurred_at >= '0001-01-01 00:00:00+00' AND p_occurred_at < '10000-01-01 00:00:00+00' THEN
        RETURN p_occurred_at;
    END IF;
    RAISE EXCEPTION 'must be a time in the years 1 to 9999' USING ERRCODE = 'PR001', COLUMN = 'occurred_at';
END
$$;
