-- The number of rows of a table, and a checksum that changes with any value, independent of the order of rows. The
-- settings that affect text output are fixed, so that two servers give the same result.
CREATE OR REPLACE FUNCTION fingerprint_table(p_name text, OUT rows bigint, OUT fingerprint bigint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET TimeZone = 'UTC' -- these five decide how values are written as text
SET DateStyle = 'ISO, YMD' -- the same reason
SET IntervalStyle = 'postgres' -- the same reason
SET bytea_output = 'hex' -- the same reason
SET extra_float_digits = 1 -- the same reason
AS $$
BEGIN
    EXECUTE format('SELECT count(*), coalesce(bit_xor(hashtextextended(t::text, 0)), 0) FROM ONLY %I AS t', p_name)
    INTO rows, fingerprint;
END
$$;
