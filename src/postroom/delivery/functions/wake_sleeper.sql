-- Register the worker of a room that wakes, in place of the process in which it slept; returns its id. Accepting a mail
-- goes on notifying it in every lane.
CREATE OR REPLACE FUNCTION wake_sleeper(p_pid integer, p_host text) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_id bigint;
BEGIN
    PERFORM forget_sleeper(p_pid, p_host);
    INSERT INTO workers (id, pid, host, asleep)
    VALUES (unrepeatable_id(), p_pid, p_host, enum_range(NULL::delivery_lane))
    RETURNING id INTO v_id;
    RETURN v_id;
END
$$;
