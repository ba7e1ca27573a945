-- Reject a name that is not a piece of a table's months. The functions that detach, drop and attach run as the owner,
-- and the caller may write any name into archived_partitions: they must not reach other tables. Temporary tables of the
-- caller are ignored.
CREATE OR REPLACE FUNCTION check_archive_name(p_table text, p_name text, p_kind text DEFAULT '') RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT starts_with(p_name, p_table || '_' || p_kind) OR NOT EXISTS (
        SELECT FROM pg_class
        WHERE relname = p_table AND relkind = 'p' AND relnamespace = quote_ident(current_schema())::regnamespace
    ) THEN
        RAISE EXCEPTION '% is not a monthly piece of %', p_name, p_table USING ERRCODE = 'PR110';
    END IF;
END
$$;
