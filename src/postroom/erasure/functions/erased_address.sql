-- What stands where an address stood: HMAC-SHA-256 of it, under a key of this room. The same address always gives the same,
-- so a suppression that was kept still suppresses; without the key nobody can try addresses against it. NULL while nobody
-- was ever erased, so that looking for erased addresses costs nothing until there are some.
CREATE OR REPLACE FUNCTION erased_address(p_address text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
SECURITY DEFINER -- the key is for the owner; who sends only needs to be told no
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN (
        SELECT 'erased:' || encode(sha256(outer_pad || sha256(inner_pad || convert_to(lower(p_address), 'UTF8'))), 'hex')
        FROM erasure_key
    );
END
$$;
