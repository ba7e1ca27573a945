-- Restart the unfinished pieces of a room that was restored from an older state: their tables exist, but their files
-- may have been finished later by the original. New files get new paths; old files stay.
CREATE OR REPLACE FUNCTION restart_pieces() RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE archived_partitions
    SET room_id = (SELECT id FROM archive_room), store_url = NULL, path = archive_path(table_name, from_time, part),
        state = CASE state WHEN 'collecting' THEN state ELSE 'exporting' END
    WHERE state NOT IN ('archived', 'expired');
END
$$;
