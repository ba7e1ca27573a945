-- Set the COMMENT of every table, view, index, column and function of the room, from texts by name, for psql's \d+, \di+
-- and \df+. A text for `table.column` takes precedence over the shared text of a column name. An index of a constraint
-- has the constraint as its text. Other objects without a text keep their comment.
CREATE OR REPLACE FUNCTION describe_room(p_relations jsonb, p_columns jsonb, p_functions jsonb) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_comment text;
BEGIN
    FOR v_comment IN
        SELECT format('COMMENT ON %s %I IS %L', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.relname,
            p_relations ->> c.relname)
        FROM pg_class AS c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
            AND p_relations ? c.relname
        UNION ALL
        SELECT format('COMMENT ON INDEX %I IS %L', c.relname, coalesce(p_relations ->> c.relname,
            format('%s of %s.', pg_get_constraintdef(i.oid), i.conrelid::regclass)))
        FROM pg_class AS c
        LEFT JOIN pg_constraint AS i ON i.conindid = c.oid AND i.contype IN ('p', 'u') AND i.conrelid = (
            SELECT indrelid FROM pg_index WHERE indexrelid = c.oid)
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('i', 'I') AND NOT c.relispartition
            AND (p_relations ? c.relname OR i.oid IS NOT NULL)
        UNION ALL
        SELECT format('COMMENT ON COLUMN %I.%I IS %L', c.relname, a.attname,
            coalesce(p_columns ->> (c.relname || '.' || a.attname), p_columns ->> a.attname))
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
            AND p_columns ?| ARRAY[c.relname || '.' || a.attname, a.attname]
        UNION ALL
        SELECT format('COMMENT ON FUNCTION %s IS %L', p.oid::regprocedure, p_functions ->> p.proname)
        FROM pg_proc AS p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.prokind = 'f' AND p_functions ? p.proname
    LOOP
        EXECUTE v_comment;
    END LOOP;
END
$$;
