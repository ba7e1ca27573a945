-- Add the counts of a range of steps to their hours; see count_steps.
CREATE OR REPLACE FUNCTION roll_up_steps(
    p_after_transaction_id xid8, p_after_position bigint, p_last_transaction_id xid8, p_last_position bigint
) RETURNS void
LANGUAGE sql
AS $$
    INSERT INTO stats_hourly AS s (hour, campaign_id, sender_account_id, domain, metric, amount)
    SELECT hour, campaign_id, sender_account_id, domain, metric, sum(amount)
    FROM count_steps(p_after_transaction_id, p_after_position, p_last_transaction_id, p_last_position)
    GROUP BY 1, 2, 3, 4, 5
    ON CONFLICT (hour, campaign_id, sender_account_id, domain, metric)
        DO UPDATE SET amount = s.amount + excluded.amount
$$;
