-- Choose accounts for a claim, least recently used first, lock them, and return how many mails each may carry: at most
-- its batch, its remaining quota of the day and, with a delay, the mails that start within one second (at least one),
-- so that the next claim waits no longer than that for the account. Accounts in p_busy are left out: their servers time
-- out for the caller. Nothing is counted here; take_senders counts once the mails are known.
CREATE OR REPLACE FUNCTION reserve_senders(
    p_lane delivery_lane, p_limit integer, p_now timestamptz, p_busy bigint[] DEFAULT '{}'
)
RETURNS TABLE (account_id bigint, granted integer, wait interval, send_delay interval)
LANGUAGE plpgsql
ROWS 10
AS $$
#variable_conflict use_column
BEGIN
    PERFORM roll_sender_days(p_now);
    PERFORM free_held_senders(p_now);
    RETURN QUERY
    WITH usable AS MATERIALIZED (
        SELECT a.id, a.batch_size, a.last_used_at, a.send_delay_ms AS delay_ms,
            least(a.daily_limit, a.warmup_current_limit) - a.daily_sent AS quota,
            greatest(extract(epoch FROM a.next_start_at - p_now) * 1000, 0) AS wait_ms
        FROM sender_accounts AS a
        WHERE a.status IN ('active', 'warming_up')
            AND p_lane = ANY (a.lanes)
            AND a.id <> ALL (p_busy)
            AND a.daily_sent < least(a.daily_limit, a.warmup_current_limit)
            AND (a.paused_until IS NULL OR a.paused_until <= p_now)
            AND (a.wanted_lane IS NULL OR a.wanted_lane >= p_lane OR a.wanted_at <= p_now - interval '2 seconds')
            AND (a.send_delay_ms = 0
                OR (a.held_by IS NULL AND coalesce(a.next_start_at < p_now + interval '1 second', true)))
        ORDER BY a.last_used_at NULLS FIRST, a.id
        LIMIT 64 -- more would be locked than any batch can use
        FOR UPDATE SKIP LOCKED -- concurrent claims take different accounts instead of waiting for each other
    ),
    offered AS (
        SELECT id, last_used_at, delay_ms, wait_ms,
            least(batch_size, quota,
                CASE WHEN delay_ms > 0 THEN greatest(1, ceil((1000 - wait_ms) / delay_ms)) END)::integer AS offer
        FROM usable
    ),
    summed AS (
        SELECT *, sum(offer) OVER (ORDER BY last_used_at NULLS FIRST, id) - offer AS before
        FROM offered
    )
    SELECT id, least(offer, p_limit - before)::integer,
        CASE WHEN delay_ms > 0 THEN wait_ms * interval '1 millisecond' ELSE interval '0' END,
        delay_ms * interval '1 millisecond'
    FROM summed
    WHERE before < p_limit
    ORDER BY last_used_at NULLS FIRST, id;
END
$$;
