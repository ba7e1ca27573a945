-- 'ada@example.org' or 'Ada Lovelace <ada@example.org>' as {email, name}; NULL stays NULL, anything else is refused.
CREATE OR REPLACE FUNCTION parse_address(p_field text, p_value text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_match text[];
BEGIN
    IF p_value IS NULL THEN
        RETURN NULL;
    END IF;
    v_match := regexp_match(p_value, '^\s*(?:"?([^"<>]*?)"?\s*<)?([^\s<>@,;:"()\[\]\\]{1,64}@[^\s<>@,;:"()\[\]\\]{1,189})>?\s*$');
    IF v_match IS NULL OR p_value ~ '[\x01-\x1f\x7f]' OR (v_match[1] IS NULL) = (p_value LIKE '%>%') THEN
        RAISE EXCEPTION '%: not an e-mail address', p_field USING ERRCODE = 'PR001', COLUMN = p_field;
    END IF;
    RETURN ARRAY[v_match[2], nullif(v_match[1], '')];
END
$$;
