-- Store the marks of the room in their sequence if this is the cluster that assigned its transaction ids. Postroom's processes
-- call it after the server has started or event_clock has changed, so that no application has to. A change that is not
-- committed holds the lock of the row: then the marks stay unknown until a later call, which waits for no open transaction. A
-- transaction that has written stores nothing, because the change may be its own, and a sequence is not rolled back.
CREATE OR REPLACE FUNCTION verify_room_marks() RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- a role that follows events need not be allowed to set a sequence
SET search_path FROM CURRENT
AS $$
BEGIN
    IF are_marks_known(room_marks()) OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM setval('room_marks', base_of_marks() + c.epoch * 4 + c.has_limits::integer * 2 + c.has_erased::integer)
    FROM (SELECT * FROM event_clock WHERE system_identifier = cluster_identifier() FOR SHARE SKIP LOCKED) AS c;
END
$$;
