-- The archive's type for a PostgreSQL type. Types that are not listed are stored in PostgreSQL's text format.
CREATE OR REPLACE FUNCTION archive_type(p_type oid) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE p_type
        WHEN 'int2'::regtype THEN 'int16'
        WHEN 'int4'::regtype THEN 'int32'
        WHEN 'int8'::regtype THEN 'int64'
        WHEN 'bool'::regtype THEN 'bool'
        WHEN 'date'::regtype THEN 'date'
        WHEN 'timestamptz'::regtype THEN 'timestamp'
        ELSE 'text'
    END
$$;
