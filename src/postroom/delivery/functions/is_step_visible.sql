-- True if a snapshot shows this step, which may be stored at the id of a later transaction than the one that wrote it
-- (assign_step_place). A real snapshot that shows the writer shows the other one too; but the horizon of a follower may be
-- between them, and below it the earlier steps of the delivery are not read either. Plain SQL, so that PostgreSQL can inline it.
CREATE OR REPLACE FUNCTION is_step_visible(p_transaction_id xid8, p_written_by xid8, p_snapshot pg_snapshot) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN pg_visible_in_snapshot(p_transaction_id, p_snapshot)
    AND (p_written_by IS NULL OR pg_visible_in_snapshot(p_written_by, p_snapshot));
