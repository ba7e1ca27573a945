-- Begin a new epoch if this room was restored into another cluster, whose transaction ids may be behind those of its
-- events, its publishers and its cursors; returns whether it did. Nothing is rewritten: the epoch is in the upper bits
-- of the transaction id, so restored events come before all new ones in their old order, and every restored cursor and
-- progress row stays valid, including those beyond the last event.
--
-- With p_force a new epoch begins in any case: after a point-in-time recovery, when external readers may have seen
-- events that no longer exist. The exclusive lock on all keys waits for appends that still write in the old epoch, and
-- lock_room_marks for steps. A transaction that writes steps reads the epoch with the marks of the room, and SQL send does so
-- before its first write. Without p_force the second lock is not needed: every writer of steps checks the cluster first.
CREATE OR REPLACE FUNCTION adopt_restored_events(p_force boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT p_force AND NOT has_restored_events() AND NOT has_later_events() THEN
        PERFORM verify_room_marks();
        RETURN false;
    END IF;
    PERFORM lock_events('{}', '{*}');
    IF p_force THEN
        PERFORM lock_room_marks();
    END IF;
    UPDATE event_clock
    SET epoch = 1 + greatest(epoch, (SELECT (last_event_transaction()::text::bigint >> 48)::integer)),
        system_identifier = cluster_identifier()
    WHERE p_force OR has_restored_events() OR has_later_events();
    RETURN FOUND;
END
$$;
