-- True if the room was restored from a dump of another cluster: its transaction ids, in progress rows and clients'
-- cursors too, mean nothing here. event_clock stores the identifier of the cluster that assigned its ids. Only if the
-- role may not read that identifier are the events checked instead.
--
-- This runs at every append. Not reading the last event halves its cost, and avoids serialization failures: at
-- SERIALIZABLE a reader of the last event conflicts with every append of the next.
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
