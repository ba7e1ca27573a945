-- Add figures to the statistics, one element per figure; fold_stats adds them to their hours later.
CREATE OR REPLACE FUNCTION add_stats(
    p_at timestamptz[], p_campaign_id bigint[], p_sender_account_id bigint[], p_domain text[], p_metric text[]
) RETURNS void
LANGUAGE sql
AS $$
    INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, metric, amount)
    SELECT date_trunc('hour', at, 'UTC'), campaign_id, sender_account_id, domain, metric, count(*)
    FROM unnest(p_at, p_campaign_id, p_sender_account_id, p_domain, p_metric)
        AS i(at, campaign_id, sender_account_id, domain, metric)
    GROUP BY 1, 2, 3, 4, 5
$$;
