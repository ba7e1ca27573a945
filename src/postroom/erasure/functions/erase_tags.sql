-- The tags of a delivery without an address; each name and each value is a key, see erase_key.
CREATE OR REPLACE FUNCTION erase_tags(p_tags jsonb, p_address text, p_pseudonym text) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_tags IS NULL OR strpos(lower(p_tags::text), p_address) = 0 OR jsonb_typeof(p_tags) <> 'object' THEN
        RETURN p_tags;
    END IF;
    RETURN (
        SELECT jsonb_object_agg(erase_key(name, p_address, p_pseudonym), CASE jsonb_typeof(value)
            WHEN 'string' THEN to_jsonb(erase_key(value #>> '{}', p_address, p_pseudonym))
            ELSE erase_text(value::text, p_address, p_pseudonym)::jsonb
        END)
        FROM jsonb_each(p_tags) AS tag(name, value)
    );
END
$$;
