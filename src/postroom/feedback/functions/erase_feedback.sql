-- Erase an address from suppressions: the pseudonym replaces it and still suppresses. If a row with the pseudonym
-- exists, the address was suppressed again after an erasure: the later row is kept. Returns the number of suppressions.
CREATE OR REPLACE FUNCTION erase_feedback(p_address text, p_pseudonym text) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_kept bigint;
BEGIN
    -- The meaning does not change, so neither the history nor the events get a row.
    PERFORM set_config('postroom.quiet', 'on', true);
    DELETE FROM suppressions AS old
    USING suppressions AS new
    WHERE old.address = p_pseudonym AND new.address = p_address AND new.scope = old.scope;
    UPDATE suppressions
    SET address = p_pseudonym, detail = NULL, origin = erase_text(origin, p_address, p_pseudonym)
    WHERE address = p_address;
    GET DIAGNOSTICS v_kept = ROW_COUNT;
    RETURN v_kept;
END
$$;
