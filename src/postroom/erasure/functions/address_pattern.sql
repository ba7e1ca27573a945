-- A pattern that finds an address in a text and not inside a longer one: ann@example.org neither in joann@example.org
-- nor in ann@example.org.uk. It may follow an escape sequence, which is no part of an address: "\nann@example.org" and
-- "\u201cann@example.org" in JSON, \234ann@example.org in bytes that are shown as text.
CREATE OR REPLACE FUNCTION address_pattern(p_address text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT '(?:(?<![\w.+-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=\\[0-7]{3}))'
        || regexp_replace(p_address, '([^\w@])', '\\\1', 'g') || '(?![\w-]|\.\w)'
$$;
