-- Add the counts of a range of steps to their hours, also by campaign alone; see count_steps.
CREATE OR REPLACE FUNCTION roll_up_steps(
    p_after_transaction_id xid8, p_after_position bigint, p_last_transaction_id xid8, p_last_position bigint
) RETURNS void
LANGUAGE sql
AS $$
    WITH counted AS MATERIALIZED (
        SELECT hour, campaign_id, sender_account_id, domain, metric, sum(amount) AS amount
        FROM count_steps(p_after_transaction_id, p_after_position, p_last_transaction_id, p_last_position)
        GROUP BY 1, 2, 3, 4, 5
    ),
    by_campaign AS (
        INSERT INTO stats_campaign_hours AS s (campaign_id, hour, metric, amount)
        SELECT campaign_id, hour, metric, sum(amount)
        FROM counted
        WHERE campaign_id <> 0
        GROUP BY 1, 2, 3
        ON CONFLICT (campaign_id, hour, metric) DO UPDATE SET amount = s.amount + excluded.amount
    )
    INSERT INTO stats_hourly AS s (hour, campaign_id, sender_account_id, domain, metric, amount)
    SELECT hour, campaign_id, sender_account_id, domain, metric, amount
    FROM counted
    ON CONFLICT (hour, campaign_id, sender_account_id, domain, metric)
        DO UPDATE SET amount = s.amount + excluded.amount
$$;
