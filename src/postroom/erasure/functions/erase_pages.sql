-- One bounded step of a search for the address inside values: some pages of one table. Texts, arrays of texts and JSON
-- get the pseudonym, keys by the rule of erase_key; a row whose bytes contain the address is deleted, because bytes
-- cannot be edited. An updated row moves to a later page, where it is searched again without effect. Returns the number
-- of changed rows.
CREATE OR REPLACE FUNCTION erase_pages(
    p_table text, p_columns text[], p_keys text[], p_address text, p_pseudonym text, p_from_page bigint, p_to_page bigint
) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_deletes boolean;
    v_changes text;
    v_found   text;
    v_touched bigint;
BEGIN
    SELECT bool_or(type = 'bytea'),
        string_agg(format('%I = %s', name, changed), ', '),
        -- strpos runs first, because a regular expression is slower. Bytes are compared in their escaped text form, and
        -- the address too: in that form non-ASCII letters are octal numbers.
        string_agg(format(
            CASE type
                WHEN 'bytea' THEN
                    '(strpos(lower(encode(%1$I, ''escape'')), encode(convert_to($1, ''UTF8''), ''escape'')) > 0'
                    ' AND lower(encode(%1$I, ''escape'')) ~ address_pattern(encode(convert_to($1, ''UTF8''), ''escape'')))'
                ELSE '(strpos(lower(%1$I::text), $1) > 0 AND %1$I IS DISTINCT FROM %2$s)'
            END, name, changed), ' OR ')
    INTO v_deletes, v_changes, v_found
    FROM (
        SELECT attname AS name, format_type(atttypid, NULL) AS type, format(
            CASE format_type(atttypid, NULL)
                WHEN 'bytea' THEN '%2$I'
                WHEN 'jsonb' THEN CASE
                    WHEN attname = ANY(p_keys) THEN 'erase_tags(%2$I, $1, $2)'
                    ELSE '%1$I(%2$I::text, $1, $2)::jsonb'
                END
                WHEN 'text[]' THEN
                    'ARRAY(SELECT %1$I(i, $1, $2) FROM unnest(%2$I) WITH ORDINALITY AS u(i, n) ORDER BY n)'
                ELSE '%1$I(%2$I, $1, $2)'
            END, CASE WHEN attname = ANY(p_keys) THEN 'erase_key' ELSE 'erase_text' END, attname) AS changed
        FROM pg_attribute
        WHERE attrelid = to_regclass(quote_ident(p_table)) AND attname = ANY(p_columns || p_keys) AND NOT attisdropped
    ) AS searched;
    IF v_found IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE CASE WHEN v_deletes THEN format('DELETE FROM ONLY %I', p_table) ELSE format('UPDATE ONLY %I SET ', p_table) || v_changes END
        || ' WHERE ctid >= $3::text::tid AND ctid < $4::text::tid AND (' || v_found || ')'
    USING p_address, p_pseudonym, format('(%s,0)', p_from_page), format('(%s,0)', p_to_page);
    GET DIAGNOSTICS v_touched = ROW_COUNT;
    RETURN v_touched;
END
$$;
