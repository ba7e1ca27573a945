-- Refuse an account with a login and no sealed password, and say how to seal one: the key is outside PostgreSQL, and a seal
-- is bound to the id of its row.
CREATE OR REPLACE FUNCTION refuse_unsealed_secret() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'smtp_password_encrypted: a login needs a sealed password, and SQL cannot seal one'
        USING ERRCODE = 'check_violation', COLUMN = 'smtp_password_encrypted', TABLE = TG_TABLE_NAME,
            CONSTRAINT = 'sender_accounts_smtp',
            HINT = 'Add the account with `postroom senders add`, or insert it without smtp_username and run '
                '`postroom senders update ID --username NAME --secret-file FILE`.';
END
$$;

CREATE OR REPLACE TRIGGER sender_accounts_sealed
    BEFORE INSERT OR UPDATE ON sender_accounts
    FOR EACH ROW
    WHEN (NEW.smtp_username IS NOT NULL AND NEW.smtp_password_encrypted IS NULL)
    EXECUTE FUNCTION refuse_unsealed_secret();
