-- Mail of a lane is due and every account is held: ask the lanes below to leave the next free one to us.
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
            -- said once in a while is enough: a worker that waits asks fifty times a second
            AND (wanted_lane IS NULL OR wanted_lane > p_lane OR wanted_at <= p_now - interval '500 milliseconds')
            AND (wanted_lane IS NULL OR wanted_lane >= p_lane OR wanted_at <= p_now - interval '2 seconds')
        FOR UPDATE SKIP LOCKED
    )
$$;
