-- Lock mail that is due in a lane, oldest first; see lock_due_deliveries, whose settings hold here too.
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
        ORDER BY d.next_attempt_at, d.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    )
$$;
