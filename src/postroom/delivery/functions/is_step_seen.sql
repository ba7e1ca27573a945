-- True if the cursor has seen this step; is_event_seen for a step that may be stored at the id of a later transaction than
-- the one that wrote it (assign_step_place). Such a step is not visible to its own transaction before the commit. Plain SQL,
-- so that PostgreSQL can inline it.
CREATE OR REPLACE FUNCTION is_step_seen(
    p_transaction_id xid8, p_position bigint, p_written_by xid8, p_seen event_cursor
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN p_written_by IS NULL THEN is_event_seen(p_transaction_id, p_position, p_seen)
    ELSE (pg_visible_in_snapshot(p_transaction_id, (p_seen).base) AND pg_visible_in_snapshot(p_written_by, (p_seen).base))
        OR p_position <= (p_seen).through_position
        OR (pg_visible_in_snapshot(p_written_by, (p_seen).page)
            AND (p_transaction_id, p_position) <= ((p_seen).page_transaction_id, (p_seen).page_position))
END;
