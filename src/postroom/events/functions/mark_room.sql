-- Mark that the room has erased addresses, or that it has limits or has them no longer; NULL keeps a mark. Accepting reads
-- the marks instead of the tables. A mark that is set already is not written: the row stays free of locks.
CREATE OR REPLACE FUNCTION mark_room(p_has_erased boolean DEFAULT NULL, p_has_limits boolean DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE event_clock
    SET has_erased = coalesce(p_has_erased, has_erased), has_limits = coalesce(p_has_limits, has_limits)
    WHERE has_erased <> p_has_erased OR has_limits <> p_has_limits;
END
$$;
