-- The folder of this room within a store that others may use too: its name for people, and a part of its id.
CREATE OR REPLACE FUNCTION archive_folder() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN (SELECT current_schema() || '-' || left(id::text, 8) FROM archive_room);
END
$$;
