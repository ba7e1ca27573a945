-- The number of a verified room without marks, in the sequence room_marks: the start of the server in milliseconds, above the
-- 17 bits of epoch and marks. The id of the sequence is different in a room that a dump made on the same server: pg_dump reads
-- sequences later than tables, and the number may be that of later marks. The planner inlines the function.
CREATE OR REPLACE FUNCTION base_of_marks() RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT ((date_part('epoch', pg_postmaster_start_time()) * 1000)::bigint << 17) # ('room_marks'::regclass::oid::bigint << 26)
$$;
