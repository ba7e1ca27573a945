-- A row that a person writes into bounce_list suppresses the address for all mail; a soft bounce holds it for a day, as a
-- report does. A new row never lowers a more severe suppression, such as a manual one. A DELETE lifts the suppression.
CREATE OR REPLACE FUNCTION write_bounce_list() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may write the list need not have write access to the suppressions
SET search_path FROM CURRENT
AS $$
BEGIN
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND OLD.email <> NEW.email) THEN
        DELETE FROM suppressions
        WHERE address = OLD.email AND reason IN ('hard_bounce', 'soft_bounce', 'complaint');
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO suppressions AS s (
            address, scope, reason, origin, detail, code, sender_account_id, campaign_id, first_seen_at, last_seen_at,
            bounce_count, until
        )
        VALUES (NEW.email, 'all',
            (CASE NEW.bounce_type WHEN 'hard' THEN 'hard_bounce' WHEN 'soft' THEN 'soft_bounce' ELSE 'complaint' END)
                ::suppression_reason,
            'bounce_list', NEW.bounce_reason, NEW.bounce_code, NEW.sender_account_id, numeric_campaign(NEW.campaign_id),
            NEW.first_bounced_at, NEW.last_bounced_at, NEW.bounce_count,
            CASE WHEN NEW.bounce_type = 'soft' THEN NEW.last_bounced_at + interval '24 hours' END)
        ON CONFLICT (address, scope) DO UPDATE
        SET reason = excluded.reason, detail = excluded.detail, code = excluded.code,
            sender_account_id = excluded.sender_account_id, campaign_id = excluded.campaign_id,
            first_seen_at = excluded.first_seen_at, last_seen_at = excluded.last_seen_at,
            bounce_count = excluded.bounce_count, until = excluded.until
        WHERE TG_OP = 'UPDATE' OR excluded.reason >= s.reason;
        PERFORM list_suppressed(ARRAY[NEW.email]); -- the list shows the suppression that stands
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER bounced_addresses_suppress
    AFTER INSERT OR UPDATE OR DELETE ON bounced_addresses
    FOR EACH ROW WHEN (current_setting('postroom.follows', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION write_bounce_list();

CREATE OR REPLACE TRIGGER bounced_addresses_lower
    BEFORE INSERT OR UPDATE ON bounced_addresses
    FOR EACH ROW WHEN (NEW.email <> lower(NEW.email))
    EXECUTE FUNCTION lower_listed_email();
