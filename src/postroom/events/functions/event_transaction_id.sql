-- The transaction id of events of this transaction: PostgreSQL's, with the room's epoch in the upper sixteen bits.
--
-- At REPEATABLE READ and SERIALIZABLE the visible epoch may have ended, and an event written in it would come before
-- those that followers have read. Locking its row makes PostgreSQL raise 40001; no other concurrent commit matters
-- here.
CREATE OR REPLACE FUNCTION event_transaction_id() RETURNS xid8
LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM FROM event_clock FOR SHARE;
    END IF;
    RETURN ((SELECT epoch::bigint << 48 FROM event_clock) + pg_current_xact_id()::text::bigint)::text::xid8;
END
$$;
