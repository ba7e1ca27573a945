-- All counts: rolled up hours, deltas that are not rolled up, and steps after the cursor, in the snapshot of the
-- calling statement, so that a concurrent rollup is seen completely or not at all. Plain SQL, so that PostgreSQL can
-- inline it and reads only the hours, campaign or domain that the caller selects.
CREATE OR REPLACE FUNCTION read_counts() RETURNS TABLE (
    hour timestamptz, campaign_id bigint, sender_account_id bigint, domain text, metric text, amount bigint
)
LANGUAGE sql STABLE
AS $$
    SELECT hour, campaign_id, sender_account_id, domain, metric, amount
    FROM stats_hourly
    UNION ALL
    SELECT hour, coalesce(campaign_id, 0), coalesce(sender_account_id, 0), domain, metric, amount
    FROM stat_deltas
    UNION ALL
    SELECT hour, campaign_id, sender_account_id, domain, metric, amount
    FROM later_counts()
$$;
