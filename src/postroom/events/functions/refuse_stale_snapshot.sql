-- At REPEATABLE READ and SERIALIZABLE every statement sees what the first one saw: older than the locks just taken. If
-- anything was committed since then the check could miss a rival: raise what such callers retry anyway (40001).
-- There is no asking PostgreSQL for a newer snapshot here, but the fate of each transaction that the old one
-- does not show can be asked for, up to the first that has not begun.
CREATE OR REPLACE FUNCTION refuse_stale_snapshot() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_snapshot CONSTANT pg_snapshot := pg_current_snapshot();
    v_own      CONSTANT xid8 := pg_current_xact_id_if_assigned();
    v_id       xid8 := pg_snapshot_xmin(v_snapshot);
    v_is_stale boolean := false;
BEGIN
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        RETURN;
    END IF;
    BEGIN
        WHILE NOT v_is_stale LOOP
            v_is_stale := pg_xact_status(v_id) = 'committed'
                AND NOT pg_visible_in_snapshot(v_id, v_snapshot)
                AND v_id IS DISTINCT FROM v_own;
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
