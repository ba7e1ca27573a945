-- For appends with a condition. At REPEATABLE READ and SERIALIZABLE every statement uses the snapshot of the first one,
-- which is older than the locks just taken. If anything was committed since, the check could miss a conflicting event:
-- raise 40001, which such callers retry anyway. PostgreSQL offers no newer snapshot here, but it reports the status of
-- each transaction that the old snapshot does not show: those that were open, and later ones up to the first that has
-- not begun.
CREATE OR REPLACE FUNCTION refuse_stale_snapshot() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_snapshot CONSTANT pg_snapshot := pg_current_snapshot();
    v_id       xid8 := pg_snapshot_xmax(v_snapshot);
    v_is_stale boolean;
BEGIN
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        RETURN;
    END IF;
    SELECT coalesce(bool_or(pg_xact_status(open.id) = 'committed'), false)
    INTO v_is_stale
    FROM pg_snapshot_xip(v_snapshot) AS open(id);
    BEGIN
        WHILE NOT v_is_stale LOOP
            v_is_stale := pg_xact_status(v_id) = 'committed';
            v_id := (v_id::text::bigint + 1)::text::xid8;
        END LOOP;
    EXCEPTION
        WHEN invalid_parameter_value THEN -- that transaction is in the future
            NULL;
    END;
    IF v_is_stale THEN
        RAISE EXCEPTION 'something was committed since this transaction''s snapshot was taken'
            USING ERRCODE = '40001', HINT = 'Run the transaction again, or append at READ COMMITTED.';
    END IF;
END
$$;
