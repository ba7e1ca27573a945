-- Notify followers if one sleeps. A NOTIFY takes a lock at commit that all notifying transactions share, so followers that
-- are awake are not notified: they will look by themselves. PostgreSQL sends one per transaction, however many appends.
CREATE OR REPLACE FUNCTION wake_event_followers() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM event_followers WHERE is_asleep) THEN
        PERFORM pg_notify(current_schema() || '_events', '');
    END IF;
END
$$;
