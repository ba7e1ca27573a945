-- End the move of the room: permit writes and claims again, and remove the mark.
CREATE OR REPLACE FUNCTION reopen_room() RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_trigger record;
BEGIN
    FOR v_trigger IN
        SELECT t.tgname, c.relname
        FROM pg_trigger AS t
        JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE c.relnamespace = current_schema()::regnamespace AND t.tgname IN ('moving_drain', 'moving_fence')
        ORDER BY c.oid
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %I', v_trigger.tgname, v_trigger.relname);
    END LOOP;
    DROP TABLE IF EXISTS moving;
END
$$;
