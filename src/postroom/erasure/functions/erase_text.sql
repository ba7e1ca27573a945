-- A text with the address replaced by the pseudonym.
CREATE OR REPLACE FUNCTION erase_text(p_text text, p_address text, p_pseudonym text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF p_text IS NULL OR strpos(lower(p_text), p_address) = 0 THEN
        RETURN p_text; -- the usual case; strpos is cheaper than a regular expression
    END IF;
    RETURN regexp_replace(p_text, address_pattern(p_address), p_pseudonym, 'gi');
END
$$;
