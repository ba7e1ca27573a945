-- Wake whoever listens on `token_insert`. Once per statement, and not while a collector is busy: a NOTIFY takes a lock that
-- the whole cluster shares and holds it until the commit is on disk, so notifying commits go one by one (three times slower
-- at ten clients). A busy collector looks by itself, and announces what it takes (dequeue_tokens).
--
-- Without a table of the new rows, which would be a copy of each: whoever inserts none does not get here.
CREATE OR REPLACE FUNCTION announce_tokens() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- who may write tokens need not be allowed to read what collectors do
SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM busy_jobs WHERE until > clock_timestamp()) THEN
        NOTIFY token_insert;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER announce_tokens
    AFTER INSERT ON tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION announce_tokens();
