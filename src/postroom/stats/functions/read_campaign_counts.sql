-- All counts by campaign and hour, in the snapshot of the calling statement; as read_counts(), which has the domains too.
CREATE OR REPLACE FUNCTION read_campaign_counts() RETURNS TABLE (
    campaign_id bigint, hour timestamptz, metric text, amount bigint
)
LANGUAGE sql STABLE
AS $$
    SELECT campaign_id, hour, metric, amount
    FROM stats_campaign_hours
    UNION ALL
    SELECT campaign_id, hour, metric, amount
    FROM stat_deltas
    WHERE campaign_id <> 0
    UNION ALL
    SELECT campaign_id, hour, metric, amount
    FROM later_counts()
    WHERE campaign_id <> 0
$$;
