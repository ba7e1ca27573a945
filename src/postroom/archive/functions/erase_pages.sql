-- One bounded step of erasing where an address stands somewhere inside: some pages of one table. Texts, arrays of texts and
-- JSON get the pseudonym; a row whose bytes hold the address is deleted, because bytes cannot be mended. A row that is
-- updated moves to a later page, where it is looked at again and found clean. Answers how many rows were touched.
CREATE OR REPLACE FUNCTION erase_pages(
    p_table text, p_columns text[], p_address text, p_pseudonym text, p_from_page bigint, p_to_page bigint
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
        string_agg(format(
            CASE type
                WHEN 'jsonb' THEN '%1$I = erase_text(%1$I::text, $1, $2)::jsonb'
                WHEN 'text[]' THEN
                    '%1$I = ARRAY(SELECT erase_text(i, $1, $2) FROM unnest(%1$I) WITH ORDINALITY AS u(i, n) ORDER BY n)'
                ELSE '%1$I = erase_text(%1$I, $1, $2)'
            END, name), ', '),
        -- The search comes first: a pattern is only tried where the letters are.
        string_agg(format(
            CASE type
                WHEN 'bytea' THEN
                    '(strpos(lower(encode(%1$I, ''escape'')), $1) > 0 AND lower(encode(%1$I, ''escape'')) ~ address_pattern($1))'
                ELSE '(strpos(lower(%1$I::text), $1) > 0 AND lower(%1$I::text) ~ address_pattern($1))'
            END, name), ' OR ')
    INTO v_deletes, v_changes, v_found
    FROM (
        SELECT attname AS name, format_type(atttypid, NULL) AS type
        FROM pg_attribute
        WHERE attrelid = to_regclass(quote_ident(p_table)) AND attname = ANY(p_columns) AND NOT attisdropped
    ) AS searched;
    IF v_found IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format(CASE WHEN v_deletes THEN 'DELETE FROM ONLY %I' ELSE 'UPDATE ONLY %I SET ' || replace(v_changes, '%', '%%') END, p_table)
        || ' WHERE ctid >= $3::text::tid AND ctid < $4::text::tid AND (' || v_found || ')'
    USING p_address, p_pseudonym, format('(%s,0)', p_from_page), format('(%s,0)', p_to_page);
    GET DIAGNOSTICS v_touched = ROW_COUNT;
    RETURN v_touched;
END
$$;
