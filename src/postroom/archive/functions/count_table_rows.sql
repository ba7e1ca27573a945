-- The number of rows of a table given by name.
CREATE OR REPLACE FUNCTION count_table_rows(p_name text) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_rows bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM %I', p_name) INTO v_rows;
    RETURN v_rows;
END
$$;
