-- One bounded step: move rows of a piece's month from the default partition into the piece's own table, atomically.
-- Returns the number of moved rows.
CREATE OR REPLACE FUNCTION collect_late_rows(p_id bigint, p_limit integer) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_piece archived_partitions;
    v_moved bigint;
BEGIN
    SELECT * INTO STRICT v_piece FROM archived_partitions WHERE id = p_id AND state = 'collecting';
    EXECUTE format(
        'WITH moved AS (
            DELETE FROM %1$I
            WHERE ctid = ANY (ARRAY(SELECT ctid FROM %1$I WHERE %2$I >= $1 AND %2$I < $2 LIMIT $3))
            RETURNING *
        )
        INSERT INTO %3$I SELECT * FROM moved',
        default_partition(v_piece.table_name), partition_column(v_piece.table_name), v_piece.source_name)
    USING v_piece.from_time, v_piece.to_time, p_limit;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END
$$;
