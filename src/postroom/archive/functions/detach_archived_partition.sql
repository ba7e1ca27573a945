-- Detach a verified partition from its table. The lock has a short timeout: while it is waited for, every worker that
-- finishes an attempt queues behind it. Fails with lock_not_available, and the next run tries again.
CREATE OR REPLACE FUNCTION detach_archived_partition(p_id bigint) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- changing tables needs the owner; other workers may archive and nothing more
SET search_path FROM CURRENT
SET lock_timeout = '500ms' -- see above
AS $$
DECLARE
    v_piece archived_partitions;
BEGIN
    UPDATE archived_partitions
    SET state = 'detached', is_attached = false
    WHERE id = p_id AND state = 'verified' AND is_attached
    RETURNING * INTO v_piece;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'piece % is not a verified partition', p_id USING ERRCODE = 'PR110';
    END IF;
    PERFORM check_archive_name(v_piece.table_name, v_piece.source_name);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', v_piece.table_name, v_piece.source_name);
END
$$;
