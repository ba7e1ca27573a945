-- Erase by equality, where a column is the address and nothing else: delete the rows, or put the pseudonym in its place.
-- Answers how many rows were touched; a table that is not there has none.
CREATE OR REPLACE FUNCTION erase_rows(
    p_table text, p_column text, p_how text, p_address text, p_pseudonym text
) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_touched bigint;
BEGIN
    IF to_regclass(quote_ident(p_table)) IS NULL THEN
        RETURN 0;
    END IF;
    -- Both forms: one that an index of addresses in lower case serves, one that an index on lower() serves.
    EXECUTE format(
        CASE p_how
            WHEN 'delete' THEN 'DELETE FROM %1$I WHERE %2$I = $1 OR lower(%2$I) = $1'
            WHEN 'replace' THEN 'UPDATE %1$I SET %2$I = $2 WHERE %2$I = $1 OR lower(%2$I) = $1'
        END, p_table, p_column)
    USING p_address, p_pseudonym;
    GET DIAGNOSTICS v_touched = ROW_COUNT;
    RETURN v_touched;
END
$$;
