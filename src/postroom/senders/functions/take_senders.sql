-- Count the mails that a claim takes from the accounts locked by reserve_senders, in the same transaction. An account
-- with a delay is held by the claim; one without quota left is paused for the day and keeps its previous status.
CREATE OR REPLACE FUNCTION take_senders(
    p_account_ids bigint[], p_counts integer[], p_claim_id bigint, p_now timestamptz
) RETURNS void
LANGUAGE sql
AS $$
    UPDATE sender_accounts AS a
    SET daily_sent = a.daily_sent + t.count,
        last_used_at = p_now,
        wanted_lane = NULL,
        wanted_at = NULL,
        held_by = CASE WHEN a.send_delay_ms > 0 THEN p_claim_id END,
        -- provisional, until the holder reports its last start; without a report, the planned time
        next_start_at = CASE WHEN a.send_delay_ms > 0 THEN
            greatest(a.next_start_at, p_now) + t.count * a.send_delay_ms * interval '1 millisecond' END,
        status = CASE WHEN t.is_last THEN 'paused_limit_reached' ELSE a.status END,
        resume_status = CASE WHEN t.is_last THEN a.status END
    FROM (
        SELECT g.id, g.count, b.daily_sent + g.count >= least(b.daily_limit, b.warmup_current_limit) AS is_last
        FROM unnest(p_account_ids, p_counts) AS g(id, count)
        JOIN sender_accounts AS b ON b.id = g.id
        WHERE g.count > 0
    ) AS t
    WHERE a.id = t.id
$$;
