-- Erase the counters of an address and its reservation as a login. Both are stored under a hash without a key, so an
-- attacker could test guessed addresses against it. Returns the number of counters.
CREATE OR REPLACE FUNCTION erase_accounts(p_address text) RETURNS bigint
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
