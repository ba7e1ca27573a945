-- The largest transaction id of visible events and steps; NULL without any.
CREATE OR REPLACE FUNCTION last_event_transaction() RETURNS xid8
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_last xid8 := (SELECT max(transaction_id) FROM events);
BEGIN
    IF to_regclass('all_steps') IS NOT NULL THEN -- the event store can be installed alone
        RETURN greatest(v_last, (SELECT max(transaction_id) FROM all_steps));
    END IF;
    RETURN v_last;
END
$$;
