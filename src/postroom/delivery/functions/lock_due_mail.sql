-- Lock mail that is due in a lane, oldest first; see lock_due_deliveries, whose settings hold here too. Mail of a paused or
-- cancelled campaign never leaves, however it came to be due: a worker that stops gives back what it claimed before the
-- pause, and the feeder has not looked yet.
CREATE OR REPLACE FUNCTION lock_due_mail(p_lane delivery_lane, p_limit integer, p_now timestamptz) RETURNS bigint[]
LANGUAGE sql
AS $$
    SELECT ARRAY(
        SELECT d.id
        FROM deliveries AS d
        WHERE d.lane = p_lane
            AND d.channel = 'email'
            AND d.next_attempt_at <= p_now
            AND d.next_attempt_at IS NOT NULL
            AND (d.state = 'rendered' OR d.template_id IS NULL)
            AND (d.campaign_id IS NULL OR NOT EXISTS (
                SELECT FROM campaigns AS c WHERE c.id = d.campaign_id AND c.status IN ('paused', 'cancelled')))
        ORDER BY d.next_attempt_at, d.id
        LIMIT p_limit
        FOR UPDATE OF d SKIP LOCKED
    )
$$;
