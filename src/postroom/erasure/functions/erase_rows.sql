-- Erase by equality, where a column is exactly the address: delete the rows, or replace the value by the pseudonym.
-- Returns the number of changed rows; 0 for a table that does not exist.
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
    -- Both conditions: the first uses an index on lower-case addresses, the second an index on lower().
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
