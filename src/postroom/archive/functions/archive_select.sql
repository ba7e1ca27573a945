-- The SELECT that reads some pages of a table the way the archive writes it: numbers, truth values and dates as they are,
-- moments in UTC to the microsecond, everything else as text. Pages, because a closed partition does not move its rows: each
-- step reads its own few pages, with a snapshot of its own that holds nothing back for long.
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
