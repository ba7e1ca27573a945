-- All counts of one dimension by value and hour, in the snapshot of the calling statement; as read_counts(), which has
-- campaign, sender and domain together. For the two seconds until the rollup, a value beyond the limits of roll_up() is
-- returned as itself.
CREATE OR REPLACE FUNCTION read_dimension_counts(p_dimension stats_dimension) RETURNS TABLE (
    value text, hour timestamptz, metric text, amount bigint
)
LANGUAGE sql STABLE
AS $$
    SELECT value, hour, metric, amount
    FROM stats_dimension_hours
    WHERE dimension = p_dimension
    UNION ALL
    SELECT v.value, d.hour, d.metric, d.amount
    FROM stat_deltas AS d
    CROSS JOIN LATERAL dimension_values(d.campaign_id, d.sender_account_id, d.template_id, d.tags) AS v
    WHERE v.dimension = p_dimension
    UNION ALL
    SELECT v.value, l.hour, l.metric, l.amount
    FROM later_counts() AS l
    CROSS JOIN LATERAL dimension_values(l.campaign_id, l.sender_account_id, l.template_id, l.tags) AS v
    WHERE v.dimension = p_dimension
$$;
