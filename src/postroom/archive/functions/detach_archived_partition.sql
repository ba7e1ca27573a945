-- Take a verified partition out of its table. The lock is waited for only briefly: while somebody waits for it, every
-- worker that finishes an attempt waits behind. Fails with lock_not_available, and is tried again.
CREATE OR REPLACE FUNCTION detach_archived_partition(p_id bigint) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- only an owner may change tables; a worker that is none may archive, and nothing else
SET search_path FROM CURRENT
SET lock_timeout = '500ms'
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
