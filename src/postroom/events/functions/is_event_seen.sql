-- True if the cursor has seen this event. Plain SQL, so that PostgreSQL can inline it.
CREATE OR REPLACE FUNCTION is_event_seen(p_transaction_id xid8, p_position bigint, p_seen event_cursor) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN pg_visible_in_snapshot(p_transaction_id, (p_seen).base)
    OR p_position <= (p_seen).through_position
    OR (pg_visible_in_snapshot(p_transaction_id, (p_seen).page)
        AND (p_transaction_id, p_position) <= ((p_seen).page_transaction_id, (p_seen).page_position))
    OR (p_transaction_id = (p_seen).own_transaction_id AND p_position <= (p_seen).own_position);
