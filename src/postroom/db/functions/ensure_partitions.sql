-- Create a table's partitions for this month and the given number of months ahead. Safe to call at any time and
-- concurrently. A month that has rows in the default partition gets no partition.
CREATE OR REPLACE FUNCTION ensure_partitions(p_table text, p_months integer DEFAULT 2, p_now timestamptz DEFAULT now())
RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER -- a worker that does not own the room must be able to create next month's partition
SET search_path FROM CURRENT
SET TimeZone = 'UTC' -- months begin in UTC, independent of the session's time zone
SET lock_timeout = '1s' -- writers queue behind a waiting lock; the next run tries again
AS $$
DECLARE
    v_month timestamptz;
    v_name  text;
    v_made  integer := 0;
BEGIN
    IF partition_column(p_table) IS NULL THEN
        RETURN 0;
    END IF;
    IF p_now NOT BETWEEN now() - interval '10 years' AND now() + interval '10 years' OR p_months > 24 THEN
        RAISE EXCEPTION 'partitions are created for times within ten years of now and at most 24 months ahead';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ':partitions', 0));
    FOR v_month IN
        SELECT date_trunc('month', p_now) + make_interval(months => n) FROM generate_series(0, p_months) AS n
    LOOP
        v_name := p_table || to_char(v_month, '_YYYY_MM');
        CONTINUE WHEN to_regclass(quote_ident(v_name)) IS NOT NULL;
        BEGIN
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                v_name, p_table, v_month, v_month + interval '1 month'
            );
            v_made := v_made + 1;
        EXCEPTION WHEN check_violation OR invalid_object_definition THEN
            NULL; -- the default partition has rows of that month, or a partition of another name covers it
        END;
    END LOOP;
    RETURN v_made;
END
$$;
