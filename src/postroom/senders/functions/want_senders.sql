-- Mail of a lane is due and every account is held: ask lower lanes to leave the next free account to this lane.
CREATE OR REPLACE FUNCTION want_senders(p_lane delivery_lane, p_now timestamptz) RETURNS void
LANGUAGE sql
AS $$
    UPDATE sender_accounts
    SET wanted_lane = p_lane, wanted_at = p_now
    WHERE id IN (
        SELECT id
        FROM sender_accounts
        WHERE status IN ('active', 'warming_up')
            AND send_delay_ms > 0
            AND p_lane = ANY (lanes)
            -- rate-limited: a waiting worker asks fifty times a second
            AND (wanted_lane IS NULL OR wanted_lane > p_lane OR wanted_at <= p_now - interval '500 milliseconds')
            AND (wanted_lane IS NULL OR wanted_lane >= p_lane OR wanted_at <= p_now - interval '2 seconds')
        FOR UPDATE SKIP LOCKED -- a claim is using the others now, and frees them soon
    )
$$;
