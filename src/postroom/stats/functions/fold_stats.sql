-- Add at most p_limit deltas to their hours and delete them, in one transaction, so that a reader sees each exactly
-- once. Returns the number of deltas; zero if another process holds the lock.
CREATE OR REPLACE FUNCTION fold_stats(p_limit integer) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    v_folded integer;
BEGIN
    -- One process at a time: two would deadlock on each other's hours.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' fold_stats', 0)) THEN
        RETURN 0;
    END IF;
    WITH taken AS (
        DELETE FROM stat_deltas
        WHERE ctid = ANY(ARRAY(SELECT ctid FROM stat_deltas LIMIT p_limit))
        RETURNING hour, campaign_id, sender_account_id, domain, metric, amount
    ),
    folded AS (
        INSERT INTO stats_hourly AS s (hour, campaign_id, sender_account_id, domain, metric, amount)
        SELECT hour, coalesce(campaign_id, 0), coalesce(sender_account_id, 0), domain, metric, sum(amount)
        FROM taken
        GROUP BY 1, 2, 3, 4, 5
        ON CONFLICT (hour, campaign_id, sender_account_id, domain, metric)
            DO UPDATE SET amount = s.amount + excluded.amount
    )
    SELECT count(*) INTO v_folded FROM taken;
    RETURN v_folded;
END
$$;
