-- Check a mail of SQL `send` against the limits of the room: raises PR120 if the room is closed, PR121 for a From outside
-- its domains. Rate and quota are kept by the workers: mail beyond them waits.
CREATE OR REPLACE FUNCTION check_room_limits(p_from text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_limits room_limits;
BEGIN
    SELECT * INTO v_limits FROM room_limits;
    IF v_limits.expires_at <= now() THEN
        RAISE EXCEPTION 'This room accepts no mail since %.', to_char(v_limits.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')
            USING ERRCODE = 'PR120';
    END IF;
    IF cardinality(v_limits.from_domains) > 0
        AND coalesce(lower(substring(p_from FROM '[^@]*$')) <> ALL (v_limits.from_domains), true)
    THEN
        RAISE EXCEPTION 'From must be an address of %.', array_to_string(v_limits.from_domains, ', ')
            USING ERRCODE = 'PR121', COLUMN = 'from';
    END IF;
END
$$;
