-- Mark whether the room has limits, so that SQL send reads no table for them. For each row: a DELETE that found no row must
-- not take away the mark of limits that another transaction sets at the same time.
CREATE OR REPLACE FUNCTION mark_room_limits() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may set limits needs no right on the mark
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM mark_room(p_has_limits => TG_OP = 'INSERT');
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER room_limits_mark
    AFTER INSERT OR DELETE ON room_limits
    FOR EACH ROW EXECUTE FUNCTION mark_room_limits();
