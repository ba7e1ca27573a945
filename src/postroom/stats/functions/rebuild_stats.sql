-- Count all steps in the database again, in one transaction, and return their number. Replaced are the counts of mail
-- in those months whose steps are all in the database: a month of which a part was archived keeps its counts. Opens,
-- clicks, bounces and other counts that are no steps stay. Readers see the old figures until the transaction commits.
CREATE OR REPLACE FUNCTION rebuild_stats() RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    v_cursor stats_cursor;
    v_months timestamptz[];
    v_steps  bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' fold_stats', 0));
    WHILE fold_stats(1000000) > 0 LOOP
        NULL; -- the cursor reaches the oldest open transaction, and all that follows is in no hour yet
    END LOOP;
    SELECT * INTO v_cursor FROM stats_cursor;
    v_months := ARRAY(
        SELECT DISTINCT date_trunc('month', s.at, 'UTC')
        FROM delivery_steps AS s
        WHERE NOT EXISTS (
            SELECT FROM archived_partitions AS a
            WHERE a.table_name = 'delivery_steps' AND NOT a.is_attached AND a.from_time = date_trunc('month', s.at, 'UTC')
        ));
    DELETE FROM stats_hourly
    WHERE date_trunc('month', hour, 'UTC') = ANY (v_months)
        AND metric IN ('accepted', 'sent', 'deferred', 'refused', 'ambiguous', 'suppressed', 'cancelled', 'dead_lettered');
    INSERT INTO stats_hourly AS s (hour, campaign_id, sender_account_id, domain, metric, amount)
    SELECT hour, campaign_id, sender_account_id, domain, metric, sum(amount)
    FROM count_steps('0', 0, v_cursor.transaction_id, v_cursor.position)
    WHERE date_trunc('month', hour, 'UTC') = ANY (v_months)
    GROUP BY 1, 2, 3, 4, 5
    ON CONFLICT (hour, campaign_id, sender_account_id, domain, metric)
        DO UPDATE SET amount = s.amount + excluded.amount;
    DELETE FROM stats_campaign_hours
    WHERE date_trunc('month', hour, 'UTC') = ANY (v_months);
    INSERT INTO stats_campaign_hours (campaign_id, hour, metric, amount)
    SELECT campaign_id, hour, metric, sum(amount)
    FROM stats_hourly
    WHERE campaign_id <> 0 AND date_trunc('month', hour, 'UTC') = ANY (v_months)
    GROUP BY 1, 2, 3;
    SELECT count(*) INTO v_steps
    FROM delivery_steps AS s
    WHERE (s.transaction_id, s.position) <= (v_cursor.transaction_id, v_cursor.position);
    RETURN v_steps;
END
$$;
