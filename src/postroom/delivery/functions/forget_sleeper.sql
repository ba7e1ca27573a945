-- Remove the registration of a process in which this room no longer sleeps.
CREATE OR REPLACE FUNCTION forget_sleeper(p_pid integer, p_host text) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM workers WHERE pid = p_pid AND host = p_host AND asleep @> enum_range(NULL::delivery_lane);
END
$$;
