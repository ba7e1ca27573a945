-- The time at which the queue has work: a delivery is due or expires, a template is to be tried, a claim has lost its
-- worker, or a mass action is unfinished. NULL: nothing waits.
CREATE OR REPLACE FUNCTION next_delivery_at() RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF EXISTS (SELECT FROM due_deliveries WHERE watch_at = '-infinity')
        OR EXISTS (SELECT FROM mass_actions WHERE finished_at IS NULL)
    THEN
        RETURN now();
    END IF;
    RETURN least(
        (
            SELECT min(first.due_at)
            FROM unnest(enum_range(NULL::delivery_lane)) AS lane(name),
                unnest(enum_range(NULL::delivery_channel)) AS channel(name),
                LATERAL (
                    SELECT min(w.due_at) AS due_at
                    FROM due_deliveries AS w
                    WHERE w.lane = lane.name AND w.channel = channel.name
                ) AS first
        ),
        (SELECT min(watch_at) FROM due_deliveries WHERE watch_at IS NOT NULL),
        (SELECT min(expires_at) FROM claims)
    );
END
$$;
