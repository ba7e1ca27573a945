-- Begin a piece for rows of a closed month that are in the default partition, and create its table. Returns the id of
-- the piece, or NULL if the default partition has no such rows, or a follower still reads them.
CREATE OR REPLACE FUNCTION open_late_segment(p_table text, p_before timestamptz) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER -- changing tables needs the owner; other workers may archive and nothing more
SET search_path FROM CURRENT
SET TimeZone = 'UTC' -- months begin in UTC, independent of the session's time zone
SET lock_timeout = '1s' -- writers of the table queue behind a waiting lock; the next run tries again
AS $$
DECLARE
    v_column text := partition_column(p_table);
    v_from   timestamptz;
    v_part   smallint;
    v_id     bigint;
    v_name   text;
BEGIN
    IF v_column IS NULL OR default_partition(p_table) IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT date_trunc(''month'', min(%1$I)) FROM %2$I WHERE %1$I < $1', v_column, default_partition(p_table))
    INTO v_from
    USING p_before;
    IF v_from IS NULL OR v_from + interval '1 month' > p_before
        OR NOT is_month_read(p_table, v_from, v_from + interval '1 month')
    THEN
        RETURN NULL;
    END IF;
    SELECT 1 + coalesce(max(part), 0) INTO v_part
    FROM archived_partitions
    WHERE table_name = p_table AND from_time = v_from;
    v_name := format('%s_late_%s_%s', p_table, to_char(v_from, 'YYYY_MM'), v_part);
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name, p_table);
    INSERT INTO archived_partitions (state, is_attached, part, from_time, to_time, room_id, table_name, source_name, path)
    VALUES ('collecting', false, v_part, v_from, v_from + interval '1 month', (SELECT id FROM archive_room), p_table, v_name,
        archive_path(p_table, v_from, v_part))
    RETURNING id INTO v_id;
    RETURN v_id;
END
$$;
