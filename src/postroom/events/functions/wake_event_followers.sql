-- Notify followers if one sleeps. A NOTIFY takes a lock at commit that all notifying transactions share, so followers that
-- are awake are not notified: they will look by themselves. PostgreSQL sends one per transaction, however many appends.
--
-- Whoever is woken says so, and says again that it sleeps: one that has been silent for a week of appends died in its sleep
-- and is notified no longer. After a silent week without any append a living one finds the first by its own poll.
CREATE OR REPLACE FUNCTION wake_event_followers() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM event_followers WHERE is_asleep AND seen_at > now() - interval '7 days') THEN
        PERFORM pg_notify(current_schema() || '_events', '');
    END IF;
END
$$;
