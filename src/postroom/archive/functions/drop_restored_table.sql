-- Let go of a restored month; the archive still has it. Only a table that was restored is dropped, or one that a restore began
-- and did not finish: it has the name of one, is no part of its table, and no record knows it.
CREATE OR REPLACE FUNCTION drop_restored_table(p_name text) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER -- only an owner may change tables; a worker that is none may archive, and nothing else
SET search_path FROM CURRENT
SET lock_timeout = '5s'
AS $$
DECLARE
    v_table  text := (SELECT table_name FROM archived_partitions WHERE restored_name = p_name LIMIT 1);
    v_pieces integer;
BEGIN
    UPDATE archived_partitions SET restored_at = NULL, restored_name = NULL WHERE restored_name = p_name;
    GET DIAGNOSTICS v_pieces = ROW_COUNT;
    IF v_pieces = 0 THEN
        SELECT substring(p_name FROM '^(.+)_restored_\d{4}_\d{2}$') INTO v_table
        FROM pg_class
        WHERE oid = to_regclass(quote_ident(p_name)) AND NOT relispartition;
    END IF;
    IF v_table IS NOT NULL THEN
        PERFORM check_archive_name(v_table, p_name, 'restored_');
        EXECUTE format('DROP TABLE IF EXISTS %I', p_name);
    END IF;
    RETURN v_pieces;
END
$$;

REVOKE ALL ON FUNCTION drop_restored_table(text) FROM PUBLIC;
