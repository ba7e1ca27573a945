-- The epoch and the marks of event_clock as one number of 17 bits: epoch * 4, plus 2 for has_limits, plus 1 for has_erased. A
-- larger or a negative number is unknown: the server has restarted since the marks were verified, event_clock has changed,
-- or the room comes from another server. Then the table is read instead. The sequence has no versions: a transaction
-- sees the marks as they are now, at every isolation level. The planner inlines the function.
CREATE OR REPLACE FUNCTION room_marks() RETURNS bigint
LANGUAGE sql
AS $$
    SELECT coalesce(pg_sequence_last_value('room_marks'), 0) - base_of_marks()
$$;
