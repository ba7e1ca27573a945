-- A machine-made key without an address: as erase_text, and also where the address follows a separator, as in
-- signup-ann@example.org or k=welcome.ann@example.org. If the longer address belongs to another known person, the key
-- stays. Different keys stay different, because some of them must be unique.
CREATE OR REPLACE FUNCTION erase_key(p_text text, p_address text, p_pseudonym text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_address text := regexp_replace(p_address, '([^\w@])', '\\\1', 'g');
    v_text    text;
BEGIN
    IF p_text IS NULL OR strpos(lower(p_text), p_address) = 0 THEN
        RETURN p_text;
    END IF;
    v_text := erase_text(p_text, p_address, p_pseudonym);
    IF NOT EXISTS (
        SELECT
        FROM regexp_matches(lower(v_text), '[\w.+-]*' || v_address || '[\w.-]*', 'g') AS longer(parts),
            LATERAL (SELECT trim(BOTH '.-' FROM parts[1]) AS email) AS other
        WHERE EXISTS (SELECT FROM delivery_recipients AS r WHERE lower(r.email) = other.email)
            OR EXISTS (SELECT FROM accounts AS a WHERE lower(a.email) = other.email)
            OR EXISTS (SELECT FROM users AS u WHERE lower(u.email) = other.email)
    ) THEN
        v_text := regexp_replace(
            v_text, '(?<![[:alnum:]+])' || v_address || '(?![[:alnum:]]|\.[[:alpha:]])', p_pseudonym, 'gi');
    END IF;
    IF v_text <> p_text AND (p_text <> lower(p_text) OR erased_address(p_address) IS DISTINCT FROM p_pseudonym) THEN
        -- Another spelling of the same address was another key: a hash under the room's key keeps the two apart.
        v_text := v_text || '~' || substr(erased_address(md5(p_text)), 8, 12);
    END IF;
    RETURN v_text;
END
$$;
