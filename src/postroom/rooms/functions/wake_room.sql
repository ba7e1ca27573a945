-- Register a process and its worker in a room that wakes, in one round trip before its first mail is claimed.
CREATE OR REPLACE FUNCTION wake_room(
    p_pid integer, p_host text, p_release integer, OUT worker_id bigint, OUT process_id bigint, OUT applied text
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    SELECT r.process_id, r.applied INTO process_id, applied FROM register_process(p_pid, p_release, p_host, 'work') AS r;
    worker_id := wake_sleeper(p_pid, p_host);
END
$$;
