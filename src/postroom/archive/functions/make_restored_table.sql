-- Create an empty table for a month to restore, with the columns, defaults and indexes of its parent. A table that an
-- unfinished restore left is replaced; one of a finished restore is an error.
CREATE OR REPLACE FUNCTION make_restored_table(p_table text, p_name text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- changing tables needs the owner; other workers may archive and nothing more
SET search_path FROM CURRENT
SET client_min_messages = warning -- without a notice about a table that does not exist
AS $$
BEGIN
    PERFORM check_archive_name(p_table, p_name, 'restored_');
    IF EXISTS (SELECT FROM archived_partitions WHERE restored_name = p_name) THEN
        RAISE EXCEPTION 'the table % holds a restored month already', p_name USING ERRCODE = 'PR111';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %I', p_name);
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)', p_name, p_table);
END
$$;
