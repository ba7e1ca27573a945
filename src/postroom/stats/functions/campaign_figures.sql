-- All counts of one campaign, as an object from metric to amount. Metrics without a count are missing.
CREATE OR REPLACE FUNCTION campaign_figures(p_campaign_id bigint) RETURNS jsonb
LANGUAGE sql STABLE
RETURN (
    SELECT coalesce(jsonb_object_agg(metric, amount), '{}')
    FROM (
        SELECT metric, sum(amount)::bigint AS amount
        FROM (
            SELECT metric, amount FROM stats_hourly WHERE campaign_id = p_campaign_id AND campaign_id <> 0
            UNION ALL
            SELECT metric, amount FROM stat_deltas WHERE campaign_id = p_campaign_id
        ) AS counted
        GROUP BY metric
    ) AS total
);
