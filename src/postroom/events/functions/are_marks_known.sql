-- Whether these marks of the room (room_marks) are known. The planner inlines the function.
CREATE OR REPLACE FUNCTION are_marks_known(p_marks bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT p_marks BETWEEN 0 AND 131071
$$;
