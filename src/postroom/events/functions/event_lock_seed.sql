-- The seed of the keys of advisory locks: a secret of the room. Its name is part of it, so that a copy of a room in the same
-- database does not block it. The planner inlines the function.
CREATE OR REPLACE FUNCTION event_lock_seed() RETURNS bigint
LANGUAGE sql
AS $$
    SELECT hashtextextended(current_schema(), pg_sequence_last_value('event_lock_key'))
$$;
