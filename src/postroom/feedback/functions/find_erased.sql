-- Whether the list of suppressions has the pseudonym of an address.
CREATE OR REPLACE FUNCTION find_erased(p_address text) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM suppressions WHERE address = erased_address(p_address));
END
$$;
