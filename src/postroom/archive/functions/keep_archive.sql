-- Keep the identity of this room in the archive after a move: its files stay its own. Called only when the room at the
-- old location is closed and will be dropped, because two rooms with one identity would overwrite each other's files.
CREATE OR REPLACE FUNCTION keep_archive() RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE archive_room
    SET place = archive_place(), schema_oid = (SELECT oid FROM pg_namespace WHERE nspname = current_schema());
END
$$;
