-- Where this room is: cluster, database and schema. No two living rooms are in the same place, and a copy of a room, however
-- it was made short of copying the whole cluster's disk, is in another than the room it was made of.
CREATE OR REPLACE FUNCTION archive_place() RETURNS text
LANGUAGE plpgsql STABLE
SECURITY DEFINER -- every role must get the same answer, also one that may not ask for the cluster
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN concat_ws('/', cluster_identifier(), (SELECT oid FROM pg_database WHERE datname = current_database()), current_schema());
END
$$;
