-- An empty table that can take a month of another back, with its columns, defaults and indexes. One of that name that was
-- never finished is thrown away; one that was is somebody's.
CREATE OR REPLACE FUNCTION make_restored_table(p_table text, p_name text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- only an owner may change tables; a worker that is none may archive, and nothing else
SET search_path FROM CURRENT
SET client_min_messages = warning
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
