-- Roll up at most p_limit deltas and p_limit steps into their hours, in one transaction, so that a reader sees each
-- exactly once. Deltas are deleted; the cursor moves past the steps. It stays below the oldest open transaction, where
-- no step can appear any more, so it never skips one. Returns the larger of both numbers; zero if another process rolls
-- up.
CREATE OR REPLACE FUNCTION fold_stats(p_limit integer) RETURNS integer
LANGUAGE plpgsql
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the tables were small must still be right when they are large
AS $$
DECLARE
    v_deltas integer;
    v_cursor stats_cursor;
    v_last   record;
BEGIN
    -- One process at a time: two would deadlock on each other's hours.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' fold_stats', 0)) THEN
        RETURN 0;
    END IF;
    IF NOT are_marks_known(room_marks()) THEN
        PERFORM adopt_restored_events(); -- so that no application has to verify the cluster for each mail
    END IF;
    SELECT * INTO v_cursor FROM stats_cursor;
    SELECT * INTO v_last FROM last_step(v_cursor.transaction_id, v_cursor.position, event_horizon(), 0, p_limit);
    IF v_last.steps IS NULL AND NOT EXISTS (SELECT FROM stat_deltas) THEN
        RETURN 0;
    END IF;
    v_deltas := roll_up(p_limit, v_cursor.transaction_id, v_cursor.position, v_last.transaction_id, v_last.position);
    IF v_last.steps IS NOT NULL THEN
        UPDATE stats_cursor SET transaction_id = v_last.transaction_id, position = v_last.position;
        PERFORM wake_event_followers(); -- of mail that was accepted while no worker of its lane could look
    END IF;
    RETURN greatest(v_deltas, coalesce(v_last.steps, 0));
END
$$;
