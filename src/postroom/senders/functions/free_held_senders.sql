-- Release accounts whose holder is gone: its claim was closed or its lease expired. The holder's last start is unknown
-- but not later than now, so the next mail may start one delay from now. SKIP LOCKED: an account that another claim is
-- taking or releasing is left to that claim.
CREATE OR REPLACE FUNCTION free_held_senders(p_now timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM sender_accounts WHERE held_by IS NOT NULL) THEN
        RETURN;
    END IF;
    UPDATE sender_accounts
    SET held_by = NULL,
        next_start_at = greatest(next_start_at, p_now + send_delay_ms * interval '1 millisecond')
    WHERE id IN (
        SELECT id
        FROM sender_accounts AS a
        WHERE held_by IS NOT NULL
            AND NOT EXISTS (SELECT FROM claims AS c WHERE c.id = a.held_by AND c.expires_at > p_now)
        FOR UPDATE SKIP LOCKED
    );
END
$$;
