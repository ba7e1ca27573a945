-- Roll up at most p_limit deltas and p_limit steps into their hours, in one transaction, so that a reader sees each
-- exactly once. Deltas are deleted; the cursor moves past the steps. It stays below the oldest open transaction, where
-- no step can appear any more, so it never skips one. Returns the larger of both numbers; zero if another process rolls
-- up.
CREATE OR REPLACE FUNCTION fold_stats(p_limit integer) RETURNS integer
LANGUAGE plpgsql
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the tables were small must still be right when they are large
AS $$
DECLARE
    v_deltas integer;
    v_cursor stats_cursor;
    v_last   record;
BEGIN
    -- One process at a time: two would deadlock on each other's hours.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' fold_stats', 0)) THEN
        RETURN 0;
    END IF;
    IF EXISTS (SELECT FROM event_clock WHERE verified_start IS DISTINCT FROM pg_postmaster_start_time()) THEN
        PERFORM adopt_restored_events(); -- after a restart of the server, so that no application has to verify it
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
    ),
    by_campaign AS (
        INSERT INTO stats_campaign_hours AS s (campaign_id, hour, metric, amount)
        SELECT campaign_id, hour, metric, sum(amount)
        FROM taken
        WHERE campaign_id <> 0
        GROUP BY 1, 2, 3
        ON CONFLICT (campaign_id, hour, metric) DO UPDATE SET amount = s.amount + excluded.amount
    )
    SELECT count(*) INTO v_deltas FROM taken;
    SELECT * INTO v_cursor FROM stats_cursor;
    SELECT next.transaction_id, next.position, count(*) OVER () AS steps INTO v_last
    FROM (
        SELECT s.transaction_id, s.position
        FROM delivery_steps AS s
        WHERE (s.transaction_id, s.position) > (v_cursor.transaction_id, v_cursor.position)
            AND s.transaction_id < event_horizon()
        ORDER BY s.transaction_id, s.position
        LIMIT p_limit
    ) AS next
    ORDER BY next.transaction_id DESC, next.position DESC
    LIMIT 1;
    IF FOUND THEN
        PERFORM roll_up_steps(v_cursor.transaction_id, v_cursor.position, v_last.transaction_id, v_last.position);
        UPDATE stats_cursor SET transaction_id = v_last.transaction_id, position = v_last.position;
        PERFORM wake_event_followers(); -- accepting a mail notifies none, and mail that is due later is claimed by no worker
    END IF;
    RETURN greatest(v_deltas, coalesce(v_last.steps, 0));
END
$$;
