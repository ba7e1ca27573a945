-- The default delay of a new account, by its type, also for direct SQL: Gmail grants 250 quota units a second and charges
-- 100 for each mail, and SES limits its own rate. `SEND_DELAY_MS` in model.py has the same numbers.
CREATE OR REPLACE FUNCTION default_send_delay() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.send_delay_ms := CASE NEW.auth_type WHEN 'gmail' THEN 400 WHEN 'ses' THEN 0 ELSE 100 END;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER default_send_delay
    BEFORE INSERT ON sender_accounts
    FOR EACH ROW
    WHEN (NEW.send_delay_ms IS NULL)
    EXECUTE FUNCTION default_send_delay();
