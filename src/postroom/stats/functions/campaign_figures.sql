-- All counts of one campaign, as an object from metric to amount. Metrics without a count are missing.
CREATE OR REPLACE FUNCTION campaign_figures(p_campaign_id bigint) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(total.metric, total.amount), '{}')
        FROM (
            SELECT c.metric, sum(c.amount)::bigint AS amount
            FROM read_dimension_counts('campaign') AS c
            WHERE c.value = p_campaign_id::text
            GROUP BY c.metric
        ) AS total
    );
END
$$;
