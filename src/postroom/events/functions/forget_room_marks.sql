-- Make the marks of the room unknown when event_clock changes. A sequence is set at once and is not rolled back: marks that are
-- unknown are always correct, so this is done before the commit; verify_room_marks does nothing until then.
CREATE OR REPLACE FUNCTION forget_room_marks() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- as verify_room_marks
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM setval('room_marks', 0);
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER forget_room_marks
    AFTER INSERT OR UPDATE ON event_clock -- BEFORE would not hold the lock of the row
    FOR EACH ROW EXECUTE FUNCTION forget_room_marks();
ALTER TABLE event_clock ENABLE ALWAYS TRIGGER forget_room_marks; -- also for changes by replication
