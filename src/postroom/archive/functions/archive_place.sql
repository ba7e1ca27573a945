-- The location of this room: cluster, database and schema. No two rooms have the same location. A copy of a room has
-- another location than its original, unless the disk of the whole cluster was copied.
CREATE OR REPLACE FUNCTION archive_place() RETURNS text
LANGUAGE plpgsql STABLE
SECURITY DEFINER -- every role must get the same result, also one that may not read the cluster's id
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN concat_ws('/', cluster_identifier(), (SELECT oid FROM pg_database WHERE datname = current_database()), current_schema());
END
$$;
