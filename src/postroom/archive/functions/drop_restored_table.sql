-- Let go of a restored month; the archive still has it. Only a table that was restored is dropped, or one that a restore began
-- and did not finish: it has the name of one, is no part of its table, and no record knows it. A month that has other rows than
-- its files is refused: what somebody added to it is nowhere else. Rows are counted under the locks of the drop, the table's
-- before its part's, as everybody takes them; who came before is counted, and nobody comes after.
CREATE OR REPLACE FUNCTION drop_restored_table(p_name text) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER -- only an owner may change tables; a worker that is none may archive, and nothing else
SET search_path FROM CURRENT
SET lock_timeout = '5s'
AS $$
DECLARE
    v_table  text;
    v_pieces integer;
    v_rows   bigint;
    v_found  bigint;
BEGIN
    SELECT min(table_name), count(*), sum(rows) INTO v_table, v_pieces, v_rows
    FROM archived_partitions
    WHERE restored_name = p_name;
    IF v_pieces = 0 THEN
        SELECT substring(p_name FROM '^(.+)_restored_\d{4}_\d{2}$') INTO v_table
        FROM pg_class
        WHERE oid = to_regclass(quote_ident(p_name)) AND NOT relispartition;
    END IF;
    IF v_table IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM check_archive_name(v_table, p_name, 'restored_');
    IF v_pieces > 0 AND to_regclass(quote_ident(p_name)) IS NOT NULL THEN
        IF (SELECT relispartition FROM pg_class WHERE oid = to_regclass(quote_ident(p_name))) THEN
            EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', v_table);
        END IF;
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', p_name);
        EXECUTE format('SELECT count(*) FROM %I', p_name) INTO v_found;
        IF v_found <> v_rows THEN
            RAISE EXCEPTION '% has % rows, and its files in the archive have %. Save the rows that were added, take them out '
                'of it, and release the month again; or, if nothing in it is worth keeping, drop the table first.',
                p_name, v_found, v_rows USING ERRCODE = 'PR112';
        END IF;
    END IF;
    UPDATE archived_partitions SET restored_at = NULL, restored_name = NULL WHERE restored_name = p_name;
    EXECUTE format('DROP TABLE IF EXISTS %I', p_name);
    RETURN v_pieces;
END
$$;
