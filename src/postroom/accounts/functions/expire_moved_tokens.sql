-- Expire the tokens of an account whose address changes: they were mailed to the old address and prove nothing about
-- the new one. An open activation gets a new token, mailed to the new address.
CREATE OR REPLACE FUNCTION expire_moved_tokens() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that writes accounts may lack the right to change tokens
SET search_path FROM CURRENT
AS $$
DECLARE
    v_now     bigint := floor(extract(epoch FROM now()));
    v_is_open boolean;
BEGIN
    WITH expired AS (
        UPDATE tokens
        SET expires_at = v_now
        WHERE account = NEW.id AND consumed_at IS NULL AND expires_at > v_now
        RETURNING action
    )
    SELECT bool_or(action = 'activation') INTO v_is_open FROM expired;
    IF v_is_open AND NEW.status = 'provisioned' THEN
        INSERT INTO tokens (account, action) VALUES (NEW.id, 'activation');
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER expire_moved_tokens
    AFTER UPDATE OF email ON accounts
    FOR EACH ROW
    WHEN (lower(NEW.email) <> lower(OLD.email))
    EXECUTE FUNCTION expire_moved_tokens();
