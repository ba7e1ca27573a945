-- The largest visible position of events; of steps, that of the last in order.
CREATE OR REPLACE FUNCTION last_event_position() RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_position bigint := (SELECT max(position) FROM events);
BEGIN
    IF to_regclass('all_steps') IS NOT NULL THEN -- the event store can be installed alone
        RETURN greatest(v_position, (
            SELECT position FROM all_steps ORDER BY transaction_id DESC, position DESC LIMIT 1));
    END IF;
    RETURN v_position;
END
$$;
