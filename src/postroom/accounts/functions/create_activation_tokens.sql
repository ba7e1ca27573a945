-- Create the activation token of every provisioned account in the statement that inserts the account.
--
-- An AFTER trigger, because ON CONFLICT DO NOTHING may skip an account, which would leave a token without one. Per
-- statement, so that ten thousand sign-ups create their tokens in one INSERT. Random numbers per token would be most of
-- its cost, so the function draws one seed (366 random bits) and derives every secret and code from it by a hash. The
-- seed is not stored, and no hash reveals it or another hash.
CREATE OR REPLACE FUNCTION create_activation_tokens() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that writes accounts may lack the right to write tokens
SET search_path FROM CURRENT
AS $$
DECLARE
    v_seed bytea;
    v_now  bigint := floor(extract(epoch FROM now()));
BEGIN
    IF NOT EXISTS (SELECT FROM created WHERE status = 'provisioned') THEN
        RETURN NULL; -- an INSERT of no rows would still notify
    END IF;
    v_seed := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
    INSERT INTO tokens (account, action, secret, code, created_at, expires_at)
    SELECT id, 'activation', sha256(v_seed || '\x01' || int8send(id)),
        -- five digits from 48 bits, as in the column's default
        lpad((('x' || encode(substr(sha256(v_seed || '\x02' || int8send(id)), 1, 6), 'hex'))::bit(48)::bigint
            % 100000)::text, 5, '0'),
        v_now, v_now + 900
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
