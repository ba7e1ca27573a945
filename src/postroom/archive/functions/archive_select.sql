-- The SELECT that reads some pages of a table in the format of the archive: numbers, booleans and dates unchanged,
-- timestamps in UTC to the microsecond, other types as text. It reads by page because rows of a closed partition do not
-- move: each step has a short snapshot of its own.
CREATE OR REPLACE FUNCTION archive_select(p_table text, p_from_page bigint, p_to_page bigint) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT format('SELECT %s FROM ONLY %I WHERE ctid >= %L::tid AND ctid < %L::tid',
            string_agg(format(
                CASE archive_type(atttypid)
                    WHEN 'timestamp' THEN $f$to_char(%1$I AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"Z"') AS %1$I$f$
                    WHEN 'text' THEN '%1$I::text'
                    WHEN 'bool' THEN '%1$I::text'
                    ELSE '%1$I'
                END, attname), ', ' ORDER BY attnum),
            p_table, format('(%s,0)', p_from_page), format('(%s,0)', p_to_page))
        FROM pg_attribute
        WHERE attrelid = to_regclass(quote_ident(p_table)) AND attnum > 0 AND NOT attisdropped
    );
END
$$;
