-- A pattern that finds an address in a text and not inside a longer one: ann@example.org neither in joann@example.org nor in
-- ann@example.org.uk. In JSON a letter may stand before it that belongs to an escape, as in "\nann@example.org".
CREATE OR REPLACE FUNCTION address_pattern(p_address text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT '(?:(?<![\w.+-])|(?<=\\[bfnrt]))' || regexp_replace(p_address, '([^\w@])', '\\\1', 'g') || '(?![\w-]|\.\w)'
$$;
