-- Release accounts whose holder is gone: its claim was closed or its lease expired. The holder's last start is unknown
-- but not later than now, so the next mail may start one delay from now. SKIP LOCKED: an account that another claim is
-- taking or releasing is left to that claim. Two statements: the one that locks an account reads the claims as they were
-- before the lock, without the claim that has taken the account meanwhile.
CREATE OR REPLACE FUNCTION free_held_senders(p_now timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_ids bigint[] := ARRAY(
        SELECT id
        FROM sender_accounts AS a
        WHERE held_by IS NOT NULL
            AND NOT EXISTS (SELECT FROM claims AS c WHERE c.id = a.held_by AND c.expires_at > p_now)
        ORDER BY id
        FOR UPDATE SKIP LOCKED
    );
BEGIN
    IF v_ids = '{}' THEN
        RETURN; -- nearly every claim
    END IF;
    UPDATE sender_accounts AS a
    SET held_by = NULL,
        next_start_at = greatest(next_start_at, p_now + send_delay_ms * interval '1 millisecond')
    WHERE id = ANY (v_ids)
        AND NOT EXISTS (SELECT FROM claims AS c WHERE c.id = a.held_by AND c.expires_at > p_now);
END
$$;
