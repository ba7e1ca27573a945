-- The column by which a table is partitioned; NULL for a missing table, or one not partitioned by a single column.
CREATE OR REPLACE FUNCTION partition_column(p_table text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT a.attname
    FROM pg_partitioned_table AS p
    JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
    WHERE p.partrelid = to_regclass(quote_ident(p_table)) AND p.partstrat = 'r' AND p.partnatts = 1
$$;
