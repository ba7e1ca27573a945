-- The folder of this room in a store that rooms can share: the room's name and a part of its id.
CREATE OR REPLACE FUNCTION archive_folder() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN (SELECT current_schema() || '-' || left(id::text, 8) FROM archive_room);
END
$$;
