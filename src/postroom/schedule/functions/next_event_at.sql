-- The time at which the scheduler has work: an event is due, a lease expires, or a person is to be planned for. NULL:
-- nothing is planned.
CREATE OR REPLACE FUNCTION next_event_at() RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN least(
        (SELECT min(target_timestamp_utc) FROM scheduled_events WHERE status = 'PENDING'),
        (SELECT min(lease_expires_at) FROM scheduled_events WHERE status = 'PROCESSING'),
        (SELECT now() FROM users WHERE planned_version <> version LIMIT 1)
    );
END
$$;
