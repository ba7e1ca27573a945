-- Add figures to the statistics, one element per figure; fold_stats adds them to their hours later. Template and tags are
-- those of the delivery, or of its first attempt, which is kept longer: many opens come after a delivery was deleted.
CREATE OR REPLACE FUNCTION add_stats(
    p_at timestamptz[], p_delivery_id bigint[], p_campaign_id bigint[], p_sender_account_id bigint[], p_domain text[],
    p_metric text[]
) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, template_id, tags, metric, amount)
    SELECT g.hour, g.campaign_id, g.sender_account_id, g.domain, g.template_id, t.tags, g.metric, g.amount
    FROM (
        SELECT date_trunc('hour', i.at, 'UTC') AS hour, i.campaign_id, i.sender_account_id, i.domain,
            coalesce(d.template_id, a.template_id) AS template_id, coalesce(d.tags, a.tags) AS tags, i.metric,
            count(*) AS amount
        FROM unnest(p_at, p_delivery_id, p_campaign_id, p_sender_account_id, p_domain, p_metric)
            AS i(at, delivery_id, campaign_id, sender_account_id, domain, metric)
        LEFT JOIN deliveries AS d ON d.id = i.delivery_id
        LEFT JOIN LATERAL (
            SELECT attempts.template_id, attempts.tags
            FROM attempts
            WHERE d.id IS NULL AND attempts.delivery_id = i.delivery_id
            ORDER BY attempts.attempt_no
            LIMIT 1
        ) AS a ON true
        GROUP BY 1, 2, 3, 4, 5, 6, 7
    ) AS g
    CROSS JOIN LATERAL count_tags(g.tags) AS t;
END
$$;
