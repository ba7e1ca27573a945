-- Notify the collectors that listen on `token_insert`, unless one is busy: NOTIFY takes a cluster-wide lock and holds
-- it until the commit is on disk, which serialises notifying commits (three times slower with ten clients). A busy
-- collector polls, and notifies listeners of the tokens it takes (dequeue_tokens).
CREATE OR REPLACE FUNCTION wake_collectors() RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM busy_jobs WHERE until > clock_timestamp()) THEN
        NOTIFY token_insert;
        PERFORM pg_notify(current_schema() || '_tokens', ''); -- `token_insert` does not name the room
    END IF;
END
$$;
