-- Wake the collectors once per statement that inserts tokens.
--
-- Without a transition table, which would copy each row: an INSERT of no row does not fire the trigger.
CREATE OR REPLACE FUNCTION announce_tokens() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that writes tokens may lack the right to read busy_jobs
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM wake_collectors();
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER announce_tokens
    AFTER INSERT ON tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION announce_tokens();
