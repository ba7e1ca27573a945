-- The time at which the feeder has work, as in list_unfinished: recipients are due, a campaign may be complete, or its
-- mail contradicts its status. NULL: no campaign needs the feeder.
CREATE OR REPLACE FUNCTION next_feed_at() RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT min(CASE
            WHEN EXISTS (
                SELECT FROM due_deliveries AS w
                WHERE w.campaign_id = c.id
                    AND w.due_at >= CASE WHEN c.status = 'active' THEN '2900-01-01 00:00Z' ELSE '-infinity' END::timestamptz
                    AND w.due_at < CASE WHEN c.status = 'paused' THEN '2900-01-01 00:00Z' ELSE 'infinity' END::timestamptz
            ) THEN now()
            WHEN c.status <> 'active' THEN NULL
            WHEN zones.due_at IS NOT NULL THEN zones.due_at
            WHEN NOT EXISTS (SELECT FROM due_deliveries AS w WHERE w.campaign_id = c.id) THEN now()
        END)
        FROM campaigns AS c,
            LATERAL (
                SELECT min(z.due_at) AS due_at
                FROM campaign_zones AS z
                WHERE z.campaign_id = c.id AND z.fed_through < z.last_id
            ) AS zones
        WHERE c.status IN ('active', 'paused', 'cancelled')
            AND (c.status <> 'cancelled' OR c.finished_at > now() - interval '1 day')
    );
END
$$;
