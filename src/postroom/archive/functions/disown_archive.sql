-- Give this room a new identity in the archive: existing files belong to the original room and are only read; new files
-- are this room's own. Called for a room that was restored from a backup at another location.
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
