-- The pseudonym of an address: HMAC-SHA-256 under a key of this room. It is deterministic, so a kept suppression still
-- suppresses; without the key, addresses cannot be guessed from it. NULL before the first erasure, so that looking for
-- erased addresses costs nothing until then.
CREATE OR REPLACE FUNCTION erased_address(p_address text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
SECURITY DEFINER -- only the owner may read the key; senders need the result
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN (
        SELECT 'erased:' || encode(sha256(outer_pad || sha256(inner_pad || convert_to(lower(p_address), 'UTF8'))), 'hex')
        FROM erasure_key
    );
END
$$;
