-- Pieces that were on their way when this state of the room was saved begin again: their tables are here, but what became of
-- their files since nobody knows, and somebody may have finished them. The new files lie elsewhere; old ones stay.
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
