-- Whether the list of suppressions has the pseudonym of an address. In PL/pgSQL, so that the planner does not inline it:
-- find_suppression prepares nothing for it while no address is erased.
CREATE OR REPLACE FUNCTION find_erased(p_address text) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM suppressions WHERE address = erased_address(p_address));
END
$$;
