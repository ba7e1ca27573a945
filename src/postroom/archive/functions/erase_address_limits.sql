-- What was counted of an address goes: its key is a hash without a secret, which anybody could guess.
CREATE OR REPLACE FUNCTION erase_address_limits(p_address text) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_deleted bigint;
BEGIN
    DELETE FROM address_limits WHERE address_hash = sha256(convert_to(p_address, 'UTF8'));
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END
$$;
