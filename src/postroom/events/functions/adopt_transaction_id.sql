-- The transaction id of events, after a check that this is the cluster that assigned the ids of the room; see
-- step_transaction. Nothing is written unless the room was restored: an application's open transaction must not hold
-- the lock on the clock's row. The caller has read the marks of the room, so that no new epoch begins before it ends.
CREATE OR REPLACE FUNCTION adopt_transaction_id() RETURNS xid8
LANGUAGE plpgsql
AS $$
BEGIN
    IF has_restored_events() THEN
        PERFORM adopt_restored_events();
    END IF;
    RETURN event_transaction_id();
END
$$;
