-- Begin a new epoch if this room was restored into a cluster whose transaction ids are behind those of its events; answers
-- whether it was so. Nothing is rewritten: the epoch stands above the transaction id, so restored events come before all
-- new ones in their old order, and every cursor and progress row that was restored with them stays right.
--
-- A visible event belongs to a transaction below the snapshot's end, or to our own; one that does not was restored. With
-- p_force a new epoch begins in any case: after a point-in-time recovery, when readers outside may have seen events
-- that no longer exist. The lock on everything waits for appends that still write in the old epoch.
CREATE OR REPLACE FUNCTION adopt_restored_events(p_force boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT p_force AND NOT has_restored_events() THEN
        RETURN false;
    END IF;
    PERFORM lock_events('{}', '{*}');
    UPDATE event_clock
    SET epoch = 1 + greatest(epoch, (SELECT (max(transaction_id)::text::bigint >> 48)::integer FROM events))
    WHERE p_force OR has_restored_events();
    RETURN FOUND;
END
$$;
