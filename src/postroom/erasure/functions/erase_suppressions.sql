-- Keep a suppression without the address: the pseudonym takes its place and still suppresses. If it stands there already,
-- the person came back and was suppressed again: the later row is kept.
CREATE OR REPLACE FUNCTION erase_suppressions(p_address text, p_pseudonym text) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_kept bigint;
BEGIN
    -- Not a change that the history or anybody who follows must be told of.
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
