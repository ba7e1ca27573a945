-- Wait for all transactions that have read the marks of the room, and let no other read them before this transaction ends. A
-- transaction that reads a sequence locks it until its end. LOCK takes no sequence; this ALTER changes nothing.
CREATE OR REPLACE FUNCTION lock_room_marks() RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- as verify_room_marks: only the owner may alter a sequence
SET search_path FROM CURRENT
AS $$
BEGIN
    ALTER SEQUENCE room_marks OWNED BY NONE;
END
$$;
