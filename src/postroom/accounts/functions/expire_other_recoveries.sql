-- A recovery that was used ends the others of its account: a mail that somebody else reads later opens nothing. One that is
-- being used at this very moment is passed over, because two that wait for each other would both fail.
CREATE OR REPLACE FUNCTION expire_other_recoveries() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- who may consume a token need not be allowed to change others
SET search_path FROM CURRENT
AS $$
DECLARE
    v_now bigint := floor(extract(epoch FROM now()));
BEGIN
    UPDATE tokens
    SET expires_at = v_now
    WHERE id IN (
        SELECT id
        FROM tokens
        WHERE account = NEW.account AND action = NEW.action AND consumed_at IS NULL AND expires_at > v_now
        FOR UPDATE SKIP LOCKED
    );
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER expire_other_recoveries
    AFTER UPDATE OF consumed_at ON tokens
    FOR EACH ROW
    WHEN (NEW.action = 'password_recovery' AND NEW.consumed_at IS NOT NULL AND OLD.consumed_at IS NULL)
    EXECUTE FUNCTION expire_other_recoveries();
