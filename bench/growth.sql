-- A room with very many deliveries, made by the database itself: two are accepted and finished by the product, one waits,
-- and their rows are copied in every table that has some. New columns and tables are copied without a change here.

-- name: create_copier
-- Copy the rows of one delivery to `p_count` ids, in every table with deliveries. `p_values` has expressions over n, from
-- 1 to p_count, for columns that must not repeat: by name, or by table and name.
CREATE FUNCTION pg_temp.copy_delivery(p_id bigint, p_first bigint, p_step bigint, p_count bigint, p_values jsonb)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_table record;
BEGIN
    SET LOCAL session_replication_role = 'replica';
    FOR v_table IN
        SELECT c.oid::regclass AS name, key,
            string_agg(quote_ident(a.attname), ', ') AS columns,
            string_agg(CASE a.attname WHEN key THEN format('%s + n * %s', p_first, p_step)
                ELSE coalesce(p_values ->> (c.relname || '.' || a.attname), p_values ->> a.attname::text,
                    's.' || quote_ident(a.attname)) END, ', ') AS expressions
        FROM pg_class AS c
        CROSS JOIN LATERAL (
            SELECT CASE WHEN c.relname LIKE '%deliveries' THEN 'id' ELSE 'delivery_id' END AS key) AS named
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        GROUP BY c.oid, c.relname, key
        HAVING bool_or(a.attname = key)
    LOOP
        EXECUTE format(
            'INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %3$s FROM %1$s AS s, generate_series(1, %4$s) AS n '
            'WHERE s.%5$I = %6$s', v_table.name, v_table.columns, v_table.expressions, p_count, v_table.key, p_id);
    END LOOP;
END $$;

-- name: copy
SELECT pg_temp.copy_delivery($1, $2, $3, $4, $5);

-- name: continue_ids
-- The next delivery that is accepted gets an id after the copies.
SELECT setval(pg_get_serial_sequence('deliveries', 'id'), max(id)) FROM deliveries;

-- name: settle
VACUUM ANALYZE;
