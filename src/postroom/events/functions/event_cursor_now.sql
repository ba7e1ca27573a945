-- The cursor after all events that the calling statement sees. Take it in the statement that reads:
--     SELECT event_cursor_now(), sum((data ->> 'amount')::int) FROM events WHERE tags @> '{wallet=1}'
-- and pass it as "after" to append_events. It is exact for every query, regardless of open transactions.
CREATE OR REPLACE FUNCTION event_cursor_now() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_own xid8;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN event_snapshot()::text || '///';
    END IF;
    SELECT ((epoch::bigint << 48) + pg_current_xact_id()::text::bigint)::text::xid8 INTO v_own FROM event_clock;
    RETURN event_snapshot()::text || '///' || coalesce(v_own::text || '.' || last_position_in(v_own), '');
END
$$;
