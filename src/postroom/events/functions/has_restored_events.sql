-- Whether the room came with a dump from another cluster: its transaction ids, those in progress rows and those in the
-- cursors that people keep, mean nothing here. Every cluster has an identifier of its own, and the clock keeps the one its
-- ids were counted by. Only where that may not be asked for do the events have to tell.
--
-- This runs at every append. Not to look at the last event is half the price, and at SERIALIZABLE it matters more: who has
-- looked at it is in the way of everybody who appends the next.
CREATE OR REPLACE FUNCTION has_restored_events() RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_is_elsewhere boolean := (SELECT system_identifier <> cluster_identifier() FROM event_clock);
BEGIN
    IF v_is_elsewhere IS NULL THEN
        RETURN has_later_events();
    END IF;
    RETURN v_is_elsewhere;
END
$$;
