-- The last step: the rows are in the archive, their table goes. Only a table that is no partition any more is dropped.
CREATE OR REPLACE FUNCTION drop_archived_source(p_id bigint, p_now timestamptz DEFAULT now()) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '5s'
AS $$
DECLARE
    v_name text;
BEGIN
    UPDATE archived_partitions
    SET state = 'archived', archived_at = p_now
    WHERE id = p_id AND state IN ('verified', 'detached') AND NOT is_attached
    RETURNING source_name INTO v_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'piece % is still part of its table', p_id USING ERRCODE = 'PR110';
    END IF;
    EXECUTE format('DROP TABLE %I', v_name);
END
$$;
