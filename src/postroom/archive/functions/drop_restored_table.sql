-- Let go of a restored month; the archive still has it. Only a table that was restored is dropped.
CREATE OR REPLACE FUNCTION drop_restored_table(p_name text) RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '5s'
AS $$
DECLARE
    v_pieces integer;
BEGIN
    UPDATE archived_partitions SET restored_at = NULL, restored_name = NULL WHERE restored_name = p_name;
    GET DIAGNOSTICS v_pieces = ROW_COUNT;
    IF v_pieces > 0 THEN
        EXECUTE format('DROP TABLE IF EXISTS %I', p_name);
    END IF;
    RETURN v_pieces;
END
$$;
