-- How many rows a table has, and a number that changes with any value in any of them, in whatever order they are stored.
-- The settings that decide how values are written are fixed, so that two servers agree.
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
