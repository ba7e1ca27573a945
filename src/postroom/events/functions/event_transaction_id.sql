-- The transaction id that events of this transaction carry: PostgreSQL's, with the room's epoch in the upper sixteen bits.
CREATE OR REPLACE FUNCTION event_transaction_id() RETURNS xid8
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN ((SELECT epoch::bigint << 48 FROM event_clock) + pg_current_xact_id()::text::bigint)::text::xid8;
END
$$;
