-- Mark the room as moving, and let no worker claim deliveries any more. Everything else continues. The mark is the
-- comment of an empty table, so that every role can read it from the catalog. A repeated call changes nothing.
CREATE OR REPLACE FUNCTION begin_move(p_mark text) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF to_regclass('moving') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE TABLE moving ();
    PERFORM mark_move(p_mark);
    CREATE TRIGGER moving_drain BEFORE INSERT ON claims FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_moving();
END
$$;
