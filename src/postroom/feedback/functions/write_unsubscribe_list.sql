-- A row that a person writes into unsubscribe_list suppresses the address for bulk mail. A DELETE lifts the suppression.
CREATE OR REPLACE FUNCTION write_unsubscribe_list() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may write the list need not have write access to the suppressions
SET search_path FROM CURRENT
AS $$
BEGIN
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND OLD.email <> NEW.email) THEN
        DELETE FROM suppressions WHERE address = OLD.email AND reason = 'unsubscribe';
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO suppressions AS s (address, scope, reason, origin, detail, campaign_id, created_at)
        VALUES (NEW.email, 'bulk', 'unsubscribe', 'unsubscribe_list', NEW.unsubscribe_reason,
            numeric_campaign(NEW.campaign_id), NEW.unsubscribed_at)
        ON CONFLICT (address, scope) DO UPDATE
        SET reason = 'unsubscribe', until = NULL, detail = excluded.detail, campaign_id = excluded.campaign_id,
            created_at = excluded.created_at;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER unsubscribed_addresses_suppress
    AFTER INSERT OR UPDATE OR DELETE ON unsubscribed_addresses
    FOR EACH ROW WHEN (current_setting('postroom.follows', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION write_unsubscribe_list();

CREATE OR REPLACE TRIGGER unsubscribed_addresses_lower
    BEFORE INSERT OR UPDATE ON unsubscribed_addresses
    FOR EACH ROW WHEN (NEW.email <> lower(NEW.email))
    EXECUTE FUNCTION lower_listed_email();
