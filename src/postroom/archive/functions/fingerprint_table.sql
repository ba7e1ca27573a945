-- The number of rows of a table, and a checksum that changes with any value, independent of the order of rows. The
-- settings that affect text output are fixed, so that two servers give the same result.
CREATE OR REPLACE FUNCTION fingerprint_table(p_name text, OUT rows bigint, OUT fingerprint bigint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET TimeZone = 'UTC'
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET bytea_output = 'hex'
SET extra_float_digits = 1
AS $$
BEGIN
    EXECUTE format('SELECT count(*), coalesce(bit_xor(hashtextextended(t::text, 0)), 0) FROM ONLY %I AS t', p_name)
    INTO rows, fingerprint;
END
$$;
