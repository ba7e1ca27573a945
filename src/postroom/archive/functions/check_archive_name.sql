-- Refuse a name that is no piece of a table's months. The functions that detach, drop and attach run as the owner, for
-- somebody who may write any name into archived_partitions: they must not reach any other table. A temporary table of the
-- caller's does not count, whatever it is called.
CREATE OR REPLACE FUNCTION check_archive_name(p_table text, p_name text, p_kind text DEFAULT '') RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT starts_with(p_name, p_table || '_' || p_kind) OR NOT EXISTS (
        SELECT FROM pg_class
        WHERE relname = p_table AND relkind = 'p' AND relnamespace = quote_ident(current_schema())::regnamespace
    ) THEN
        RAISE EXCEPTION '% is no piece of the months of %', p_name, p_table USING ERRCODE = 'PR110';
    END IF;
END
$$;
