-- Notify followers if one is asleep. NOTIFY takes a lock at commit that all notifying transactions share, so awake
-- followers are not notified: they poll. PostgreSQL sends one notification per transaction, regardless of the number of
-- appends.
--
-- A follower records when it wakes up and when it sleeps again. One without a record for a week is considered dead and
-- is no longer notified; if it is alive after a week without appends, its own poll finds the next event.
CREATE OR REPLACE FUNCTION wake_event_followers() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM event_followers WHERE is_asleep AND seen_at > now() - interval '7 days') THEN
        PERFORM pg_notify(current_schema() || '_events', '');
    END IF;
END
$$;
