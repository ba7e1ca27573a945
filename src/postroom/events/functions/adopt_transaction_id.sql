-- The transaction id of events, after a check that this is the cluster that assigned the ids of the room; see
-- step_transaction. Nothing is written unless the room was restored: an application's open transaction must not hold
-- the lock on the clock's row. A new epoch may be about to begin: its transaction has locked the tables of steps, and the
-- caller, which writes one of them, waits here, before it reads the epoch.
CREATE OR REPLACE FUNCTION adopt_transaction_id() RETURNS xid8
LANGUAGE plpgsql
AS $$
BEGIN
    IF has_restored_events() THEN
        PERFORM adopt_restored_events();
    END IF;
    LOCK TABLE deliveries, delivery_steps IN ROW EXCLUSIVE MODE;
    RETURN event_transaction_id();
END
$$;
