-- The transaction id of steps, one row, for a statement that writes any number of them or of deliveries:
--     INSERT INTO delivery_steps (transaction_id, …) SELECT (SELECT id FROM step_transaction()), … FROM …
-- with the marks of the room (see event_clock), for the look-up of SQL send.
-- PostgreSQL inlines this function and evaluates the subquery once per statement. Its id equals event_transaction_id(), but
-- has no call of a stored function unless the server has restarted since the cluster was verified, the room was
-- restored into another cluster, or the isolation level is stricter than READ COMMITTED.
CREATE OR REPLACE FUNCTION step_transaction(OUT id xid8, OUT has_erased boolean, OUT has_limits boolean) RETURNS SETOF record
LANGUAGE sql STABLE -- a volatile function would not be inlined
AS $$
    SELECT CASE
        WHEN verified_start = pg_postmaster_start_time()
            AND current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')
        THEN CASE epoch
            WHEN 0 THEN pg_current_xact_id() -- the room was never restored into another cluster
            ELSE ((epoch::bigint << 48) + pg_current_xact_id()::text::bigint)::text::xid8 END
        ELSE adopt_transaction_id()
    END, has_erased, has_limits
    FROM event_clock
$$;
