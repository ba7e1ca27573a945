-- The largest position that a transaction has written, of events and steps; NULL if it has written none.
CREATE OR REPLACE FUNCTION last_position_in(p_transaction_id xid8) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_position bigint := (SELECT max(position) FROM events WHERE transaction_id = p_transaction_id);
BEGIN
    IF to_regclass('all_steps') IS NOT NULL THEN -- the event store can be installed alone
        RETURN greatest(v_position, (SELECT max(position) FROM all_steps WHERE transaction_id = p_transaction_id));
    END IF;
    RETURN v_position;
END
$$;
