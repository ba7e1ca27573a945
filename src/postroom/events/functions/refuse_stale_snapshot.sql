-- For appends that check something. At REPEATABLE READ and SERIALIZABLE every statement sees what the first one saw: older
-- than the locks just taken. If anything was committed since then the check could miss a rival: raise what such callers
-- retry anyway (40001).
-- There is no asking PostgreSQL for a newer snapshot here, but the fate of each transaction that the old one
-- does not show can be asked for: those that were open, and those that came later, up to the first that has not begun.
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
