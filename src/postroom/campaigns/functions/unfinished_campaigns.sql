-- The campaigns that may need the feeder: those that run or are paused, and ended ones with waiting mail. `due_at`: the next
-- turn of a zone whose recipients are not all queued (`has_more`). `has_mail`: mail waits. `has_stray_mail`: mail contradicts the
-- status, so that nothing would take it: free although the campaign is paused (a claimed batch was released or deferred), held
-- although it is active or completed (the process that resumed it died, or a transaction put mail on hold that outlived the
-- pause), or waiting although it was cancelled, however long ago.
--  The campaigns with waiting mail are found by skipping through their index: one look-up per campaign, however much waits.
CREATE OR REPLACE FUNCTION unfinished_campaigns()
RETURNS TABLE (
    id bigint, status campaign_status, due_at timestamptz, has_more boolean, has_mail boolean, has_stray_mail boolean
)
LANGUAGE sql STABLE
ROWS 10
AS $$
    WITH RECURSIVE found(campaign_id) AS (
        SELECT min(campaign_id) FROM due_deliveries WHERE campaign_id IS NOT NULL
        UNION ALL
        SELECT (SELECT min(w.campaign_id) FROM due_deliveries AS w WHERE w.campaign_id > found.campaign_id)
        FROM found
        WHERE found.campaign_id IS NOT NULL
    )
    SELECT c.id, c.status, zones.due_at, zones.has_more, f.campaign_id IS NOT NULL,
        f.campaign_id IS NOT NULL AND EXISTS (
            SELECT FROM due_deliveries AS w
            WHERE w.campaign_id = c.id
                AND w.due_at >= CASE WHEN c.status IN ('active', 'completed') THEN '2900-01-01 00:00Z' ELSE '-infinity' END::timestamptz
                AND w.due_at < CASE WHEN c.status = 'paused' THEN '2900-01-01 00:00Z' ELSE 'infinity' END::timestamptz
        )
    FROM campaigns AS c
    LEFT JOIN found AS f ON f.campaign_id = c.id
    CROSS JOIN LATERAL (
        SELECT min(z.due_at) AS due_at, count(*) > 0 AS has_more
        FROM campaign_zones AS z
        WHERE z.campaign_id = c.id AND z.fed_through < z.last_id
    ) AS zones
    WHERE c.status IN ('active', 'paused') OR c.status <> 'draft' AND c.id IN (SELECT campaign_id FROM found)
$$;
