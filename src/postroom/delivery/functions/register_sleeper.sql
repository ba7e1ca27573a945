-- Register a process in which this room sleeps, so that accepting a mail notifies it in every lane; renew the
-- registration once a minute. True if it was not registered before.
CREATE OR REPLACE FUNCTION register_sleeper(p_pid integer, p_host text) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_seen_at timestamptz;
BEGIN
    SELECT max(seen_at) INTO v_seen_at
    FROM workers
    WHERE pid = p_pid AND host = p_host AND asleep @> enum_range(NULL::delivery_lane);
    IF v_seen_at IS NULL THEN
        INSERT INTO workers (id, pid, host, asleep)
        VALUES (unrepeatable_id(), p_pid, p_host, enum_range(NULL::delivery_lane));
    ELSIF v_seen_at < now() - interval '1 minute' THEN
        UPDATE workers SET seen_at = now()
        WHERE pid = p_pid AND host = p_host AND asleep @> enum_range(NULL::delivery_lane);
    END IF;
    RETURN v_seen_at IS NULL;
END
$$;
