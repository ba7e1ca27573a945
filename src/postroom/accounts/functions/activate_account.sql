-- Activate a provisioned account when its activation token is consumed; a suspended account stays suspended.
CREATE OR REPLACE FUNCTION activate_account() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that consumes tokens may lack the right to change accounts
SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE accounts
    SET status = 'active'
    WHERE id = NEW.account AND status = 'provisioned';
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER activate_account
    AFTER UPDATE OF consumed_at ON tokens
    FOR EACH ROW
    WHEN (NEW.action = 'activation' AND NEW.consumed_at IS NOT NULL AND OLD.consumed_at IS NULL)
    EXECUTE FUNCTION activate_account();
