-- Make this month's and the next two months' partitions of attempts. Safe to call at any time, by several processes at once.
CREATE OR REPLACE FUNCTION ensure_attempt_partitions(p_now timestamptz DEFAULT now()) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER -- a worker that does not own the room may still make room for next month
SET search_path FROM CURRENT
SET TimeZone = 'UTC' -- months begin in UTC, whatever the session thinks
SET lock_timeout = '1s' -- results queue behind a waiting lock; the next turn tries again
AS $$
DECLARE
    v_month timestamptz;
    v_name  text;
    v_made  integer := 0;
BEGIN
    IF p_now NOT BETWEEN now() - interval '10 years' AND now() + interval '10 years' THEN
        RAISE EXCEPTION 'partitions are made for times within ten years of now';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ':partitions', 0));
    FOR v_month IN
        SELECT date_trunc('month', p_now) + make_interval(months => n) FROM generate_series(0, 2) AS n
    LOOP
        v_name := 'attempts_' || to_char(v_month, 'YYYY_MM');
        CONTINUE WHEN to_regclass(quote_ident(v_name)) IS NOT NULL;
        BEGIN
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF attempts FOR VALUES FROM (%L) TO (%L)',
                v_name, v_month, v_month + interval '1 month'
            );
            v_made := v_made + 1;
        EXCEPTION WHEN check_violation THEN
            NULL; -- the default partition already holds rows of that month and keeps them
        END;
    END LOOP;
    RETURN v_made;
END
$$;
