-- The transaction id of steps, one row, for a statement that writes any number of them or of deliveries:
--     INSERT INTO delivery_steps (transaction_id, …) SELECT (SELECT id FROM step_transaction()), … FROM …
-- PostgreSQL inlines this function and evaluates the subquery once per statement. Its id equals event_transaction_id(), but
-- has no call of a stored function unless the marks of the room are unknown.
CREATE OR REPLACE FUNCTION step_transaction() RETURNS TABLE (id xid8)
LANGUAGE sql STABLE -- a volatile function would not be inlined
ROWS 1
AS $$
    SELECT CASE
        WHEN NOT are_marks_known(marks) THEN adopt_transaction_id()
        WHEN marks < 4 THEN pg_current_xact_id() -- the room was never restored into another cluster
        ELSE ((marks >> 2 << 48) + pg_current_xact_id()::text::bigint)::text::xid8
    END
    FROM (SELECT room_marks() AS marks) AS room
$$;
