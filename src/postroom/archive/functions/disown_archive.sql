-- Become another room as far as the archive is concerned: the files there are belong to the room this one is a copy of, and
-- are read and never changed; what this room writes is its own. For a room that came back from a backup elsewhere than where
-- it was made.
CREATE OR REPLACE FUNCTION disown_archive() RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM archive_room;
    INSERT INTO archive_room (schema_oid, place)
    SELECT oid, archive_place() FROM pg_namespace WHERE nspname = current_schema();
    PERFORM restart_pieces();
END
$$;
