-- What was counted of an address goes, and that somebody asked for it as a login: both are known by a hash without a secret,
-- which anybody could guess.
CREATE OR REPLACE FUNCTION erase_address_limits(p_address text) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_hash    bytea := sha256(convert_to(p_address, 'UTF8'));
    v_deleted bigint;
BEGIN
    DELETE FROM reserved_logins WHERE login_hash = v_hash;
    DELETE FROM address_limits WHERE address_hash = v_hash;
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END
$$;
