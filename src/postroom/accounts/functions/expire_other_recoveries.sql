-- Expire the other recovery tokens of an account when one is used, so that an old mail cannot be used by another
-- reader. SKIP LOCKED skips a token that is being consumed at that moment: two that wait for each other would deadlock.
CREATE OR REPLACE FUNCTION expire_other_recoveries() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that consumes a token may lack the right to change others
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
