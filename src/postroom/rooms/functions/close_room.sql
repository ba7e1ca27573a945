-- Refuse all writes to the room. Each trigger waits for transactions that have written to its table, so nothing is
-- committed to the room after this function's transaction. Partitions get triggers too: statements may name them.
CREATE OR REPLACE FUNCTION close_room() RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_table name;
BEGIN
    FOR v_table IN
        SELECT c.relname
        FROM pg_class AS c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'moving'
            AND NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND t.tgname = 'moving_fence')
        ORDER BY c.oid
    LOOP
        EXECUTE format(
            'CREATE TRIGGER moving_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE '
            'ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_moving()', v_table);
    END LOOP;
END
$$;
