-- The name of a table's default partition, or NULL.
CREATE OR REPLACE FUNCTION default_partition(p_table text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT c.relname
    FROM pg_partitioned_table AS p
    JOIN pg_class AS c ON c.oid = p.partdefid
    WHERE p.partrelid = to_regclass(quote_ident(p_table))
$$;
