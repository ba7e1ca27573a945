-- Drop a restored month; the archive keeps it. Only a restored table is dropped, or the table of an unfinished restore:
-- it has the name of a restored month, is not attached, and has no record. A month with other rows than its files is
-- rejected, because added rows exist nowhere else. Rows are counted while holding the locks of the drop, so that no
-- concurrent INSERT is missed; the parent is locked before the partition, as every other statement does, to avoid a
-- deadlock.
CREATE OR REPLACE FUNCTION drop_restored_table(p_name text) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER -- changing tables needs the owner; other workers may archive and nothing more
SET search_path FROM CURRENT
SET lock_timeout = '5s' -- writers of the table queue behind a waiting lock
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
            RAISE EXCEPTION '% has % rows, but its archive files have %. Save the added rows elsewhere and delete them here, then '
                'release the month again; or drop the table first if the added rows can be lost.',
                p_name, v_found, v_rows USING ERRCODE = 'PR112';
        END IF;
    END IF;
    UPDATE archived_partitions SET restored_at = NULL, restored_name = NULL WHERE restored_name = p_name;
    EXECUTE format('DROP TABLE IF EXISTS %I', p_name);
    RETURN v_pieces;
END
$$;
