-- The key of an advisory lock of this room's outbox. Plain SQL and STABLE: the room is the schema of the search path.
CREATE OR REPLACE FUNCTION outbox_lock_key(VARIADIC p_parts text[]) RETURNS bigint
LANGUAGE sql STABLE
RETURN hashtextextended(current_schema() || ' outbox ' || array_to_string(p_parts, ' '), 0);
