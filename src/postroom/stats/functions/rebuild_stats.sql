-- Count all steps in the database again, in one transaction, and return their number. Replaced are the counts of mail
-- in those months whose steps are all in the database: a month of which a part was archived keeps its counts. Counts by
-- template and tag are replaced in those of them whose deliveries are all in the database, because the steps contain
-- neither. Opens, clicks, bounces and other counts that are no steps stay. Readers see the old figures until the
-- transaction commits.
CREATE OR REPLACE FUNCTION rebuild_stats() RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    c_metrics constant text[] := '{accepted,sent,deferred,refused,ambiguous,suppressed,cancelled,dead_lettered}';
    v_cursor         stats_cursor;
    v_months         timestamptz[];
    v_tagged         timestamptz[];
    v_transaction_id xid8   := '0';
    v_position       bigint := 0;
    v_last           record;
    v_steps          bigint := 0;
BEGIN
    -- A rollup meanwhile would move the cursor, and its steps would be counted twice.
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' fold_stats', 0));
    WHILE fold_stats(100000) > 0 LOOP
        NULL; -- the cursor reaches the oldest open transaction, and all that follows is in no hour yet
    END LOOP;
    SELECT * INTO v_cursor FROM stats_cursor;
    SELECT coalesce(array_agg(month) FILTER (WHERE NOT EXISTS (
            SELECT FROM archived_partitions AS a
            WHERE a.table_name = 'delivery_steps' AND NOT a.is_attached AND a.from_time = month)), '{}'),
        coalesce(array_agg(month) FILTER (WHERE has_deliveries), '{}')
    INTO v_months, v_tagged
    FROM (
        SELECT date_trunc('month', s.at, 'UTC') AS month, bool_and(s.channel <> 'email' OR d.id IS NOT NULL) AS has_deliveries
        FROM all_steps AS s
        LEFT JOIN deliveries AS d ON d.id = s.delivery_id
        GROUP BY 1
    ) AS counted;
    DELETE FROM stats_hourly
    WHERE date_trunc('month', hour, 'UTC') = ANY (v_months) AND metric = ANY (c_metrics);
    DELETE FROM stats_dimension_hours
    WHERE date_trunc('month', hour, 'UTC') = ANY (v_months) AND metric = ANY (c_metrics)
        AND (dimension NOT IN ('template', 'tag') OR date_trunc('month', hour, 'UTC') = ANY (v_tagged));
    LOOP
        SELECT * INTO v_last
        FROM last_step(v_transaction_id, v_position, v_cursor.transaction_id, v_cursor.position + 1, 100000);
        EXIT WHEN v_last.steps IS NULL;
        PERFORM roll_up(0, v_transaction_id, v_position, v_last.transaction_id, v_last.position, v_months, v_tagged);
        v_transaction_id := v_last.transaction_id;
        v_position := v_last.position;
        v_steps := v_steps + v_last.steps;
    END LOOP;
    RETURN v_steps;
END
$$;
