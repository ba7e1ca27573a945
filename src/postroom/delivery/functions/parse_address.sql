-- 'ada@example.org' or 'Ada Lovelace <ada@example.org>' as {email, name}; NULL stays NULL, anything else is rejected. Its pattern
-- costs as much as five INSERTs: see is_plain_address.
--
-- The grammar is the same as in post/address.py for ASCII addresses; tests/support/addresses.py holds the cases for both.
-- PostgreSQL has neither the tables of IDNA nor, under the C collation, lower case beyond ASCII. A non-ASCII address
-- stored unchanged would not match its suppression, so it is rejected here.
CREATE OR REPLACE FUNCTION parse_address(p_field text, p_value text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    c_address CONSTANT text := '^[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+)*@'
        '(([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?|localhost)$';
    v_named   text[];
    v_email   text;
    v_name    text;
    v_problem text;
BEGIN
    IF p_value IS NULL THEN
        RETURN NULL;
    END IF;
    v_email := btrim(p_value);
    IF v_email ~ '[<>]' THEN
        v_named := regexp_match(v_email, '^(?:"((?:[^"\\]|\\.)*)" *|([^"<>]*))<([^<>]*)>$');
        v_email := btrim(v_named[3]);
        v_name := nullif(btrim(coalesce(regexp_replace(v_named[1], '\\(.)', '\1', 'g'), v_named[2])), '');
    END IF;
    v_problem := CASE
        WHEN length(p_value) > 1000 THEN 'is too long'
        WHEN p_value ~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]' THEN 'contains a line break or another control character'
        WHEN v_email IS NULL THEN 'is not written as Name <address>'
        WHEN v_named[2] ~ '[,;]' THEN 'holds more than one address, or a name with a comma that is not in quotes'
        WHEN substring(v_email FROM '[^@]*$') ~ '[^\x01-\x7f]'
            THEN 'has a non-ASCII domain: pass its ASCII form, such as xn--bcher-kva.example'
        WHEN v_email ~ '[^\x01-\x7f]'
            THEN 'has non-ASCII characters before the @-sign: send it over HTTP, SMTP or a stream'
        WHEN v_email !~ c_address
            OR position('@' IN v_email) > 65 OR length(v_email) > 254
            THEN 'is not an e-mail address'
    END;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION '%: %', p_field, v_problem USING ERRCODE = 'PR001', COLUMN = p_field;
    END IF;
    RETURN ARRAY[split_part(v_email, '@', 1) || '@' || lower(split_part(v_email, '@', 2) COLLATE "C"), v_name];
END
$$;
