-- The transaction id that events of this transaction carry: PostgreSQL's, with the room's epoch in the upper sixteen bits.
--
-- At REPEATABLE READ and SERIALIZABLE the epoch that we see may be over, and an event written in it would come before what
-- followers have read. Locking its row makes PostgreSQL say so (40001); nothing else that was committed since matters here.
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
