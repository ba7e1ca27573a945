-- The advisory lock that stands for something in this room's outbox. Plain SQL, and stable: the room is the search path's.
CREATE OR REPLACE FUNCTION outbox_lock_key(VARIADIC p_parts text[]) RETURNS bigint
LANGUAGE sql STABLE
RETURN hashtextextended(current_schema() || ' outbox ' || array_to_string(p_parts, ' '), 0);
