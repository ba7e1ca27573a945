-- Record the time of a status change. Unsuspending an account that was never activated makes it provisioned, because
-- its address is not proven. An account that is set to provisioned must be activated again. An imported account keeps
-- its times.
CREATE OR REPLACE FUNCTION stamp_account_status() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT -- an application's connection has another search path
AS $$
DECLARE
    v_now bigint := floor(extract(epoch FROM now()));
    v_was account_status := CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END;
BEGIN
    IF v_was IS NOT NULL THEN
        NEW.status_changed_at := v_now;
    END IF;
    IF v_was = 'suspended' THEN
        NEW.suspended_at := NULL;
        NEW.unsuspended_at := v_now;
        IF OLD.activated_at IS NULL THEN
            NEW.status := 'provisioned';
        END IF;
    END IF;
    CASE NEW.status
        WHEN 'provisioned' THEN
            NEW.activated_at := NULL;
        WHEN 'active' THEN
            -- An import inserts active accounts: they count as activated, otherwise unsuspending would make them provisioned.
            NEW.activated_at := CASE WHEN v_was = 'provisioned' THEN v_now ELSE coalesce(NEW.activated_at, v_now) END;
        WHEN 'suspended' THEN
            NEW.suspended_at := CASE WHEN v_was IS NULL THEN coalesce(NEW.suspended_at, v_now) ELSE v_now END;
            NEW.unsuspended_at := NULL;
    END CASE;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER stamp_account_status
    BEFORE UPDATE OF status ON accounts
    FOR EACH ROW
    WHEN (NEW.status <> OLD.status)
    EXECUTE FUNCTION stamp_account_status();

CREATE OR REPLACE TRIGGER stamp_new_account_status
    BEFORE INSERT ON accounts
    FOR EACH ROW
    WHEN (NEW.status <> 'provisioned')
    EXECUTE FUNCTION stamp_account_status();
