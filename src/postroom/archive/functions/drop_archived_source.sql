-- The last step: drop the table whose rows are in the archive. Only a detached table is dropped.
CREATE OR REPLACE FUNCTION drop_archived_source(p_id bigint, p_now timestamptz DEFAULT now()) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- changing tables needs the owner; other workers may archive and nothing more
SET search_path FROM CURRENT
SET lock_timeout = '5s' -- only readers of the detached table can hold its lock; the next run tries again
AS $$
DECLARE
    v_piece archived_partitions;
BEGIN
    UPDATE archived_partitions
    SET state = 'archived', archived_at = p_now
    WHERE id = p_id AND state IN ('verified', 'detached') AND NOT is_attached
    RETURNING * INTO v_piece;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'piece % is still part of its table', p_id USING ERRCODE = 'PR110';
    END IF;
    PERFORM check_archive_name(v_piece.table_name, v_piece.source_name);
    IF EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(quote_ident(v_piece.source_name)) AND relispartition) THEN
        RAISE EXCEPTION '% is still part of its table', v_piece.source_name USING ERRCODE = 'PR110';
    END IF;
    EXECUTE format('DROP TABLE %I', v_piece.source_name);
END
$$;
