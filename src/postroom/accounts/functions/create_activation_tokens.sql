-- Every provisioned account gets its activation token in the statement that inserts it: they stand or fall together.
--
-- After, not before: ON CONFLICT DO NOTHING leaves an account out, and a token made beforehand would be left without one.
-- Per statement, not per row: ten thousand sign-ups make their ten thousand tokens in one insert.
CREATE OR REPLACE FUNCTION create_activation_tokens() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO tokens (account, action)
    SELECT id, 'activation'
    FROM created
    WHERE status = 'provisioned'
    ORDER BY id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER create_activation_tokens
    AFTER INSERT ON accounts
    REFERENCING NEW TABLE AS created
    FOR EACH STATEMENT
    EXECUTE FUNCTION create_activation_tokens();
