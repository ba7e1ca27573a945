-- Detect that this room is a copy, or was restored from an older state. Runs before any other work on the archive,
-- under the archive's lock.
CREATE OR REPLACE FUNCTION settle_archive() RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_schema oid := (SELECT oid FROM pg_namespace WHERE nspname = current_schema());
BEGIN
    IF NOT EXISTS (SELECT FROM archive_room WHERE place = archive_place()) THEN
        PERFORM disown_archive();
    ELSIF NOT EXISTS (SELECT FROM archive_room WHERE schema_oid = v_schema) THEN
        UPDATE archive_room SET schema_oid = v_schema;
        PERFORM restart_pieces();
    END IF;
END
$$;
