-- Every provisioned account gets its activation token in the statement that inserts it: they stand or fall together.
--
-- After, not before: ON CONFLICT DO NOTHING leaves an account out, and a token made beforehand would be left without one.
-- Per statement, not per row: ten thousand sign-ups make their ten thousand tokens in one insert. Asking the strong source
-- for each would be most of what that costs, so it is asked for one seed (366 random bits), of which every secret and every
-- code is a hash of its own; the seed is kept nowhere, and no hash tells anything about it or about another.
CREATE OR REPLACE FUNCTION create_activation_tokens() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- who may write accounts need not be allowed to read tokens
SET search_path FROM CURRENT
AS $$
DECLARE
    v_seed bytea;
    v_now  bigint := floor(extract(epoch FROM now()));
BEGIN
    IF NOT EXISTS (SELECT FROM created WHERE status = 'provisioned') THEN
        RETURN NULL; -- an insert of nothing would be announced
    END IF;
    v_seed := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
    INSERT INTO tokens (account, action, secret, code, created_at, expires_at)
    SELECT id, 'activation', sha256(v_seed || '\x01' || int8send(id)),
        -- five digits from 48 bits, as the column's default makes them
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
