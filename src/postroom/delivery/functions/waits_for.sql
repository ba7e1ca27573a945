-- Why a delivery waits; NULL if it does not. Derived from the rows that a claim reads, and stored nowhere.
--
--   time      it was accepted for a later time
--   pause     its campaign is paused
--   hold      bulk mail to an address whose last mail bounced softly
--   relay     its last attempt could not connect, secure the connection or log in; the next attempt has a time
--   retry     the other side asked to try later, or did not answer; the next attempt has a time
--   worker    it is due, and no worker runs
--   quota     it is due, and every sender account of its lane, or the room, has used its quota of the day
--   sender    it is due, and no sender account of its lane may send: paused, suspended or resting
--   turn      it is due, and leaves when the mail before it has left
CREATE OR REPLACE FUNCTION waits_for(p_delivery_id bigint, p_now timestamptz DEFAULT now()) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_mail deliveries;
BEGIN
    SELECT * INTO v_mail FROM deliveries AS d WHERE d.id = p_delivery_id AND d.next_attempt_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF EXISTS (SELECT FROM campaigns AS c WHERE c.id = v_mail.campaign_id AND c.status = 'paused') THEN
        RETURN 'pause';
    END IF;
    IF v_mail.next_attempt_at > p_now THEN
        RETURN CASE
            WHEN v_mail.first_attempt_at IS NOT NULL THEN CASE
                WHEN v_mail.channel = 'email' AND (
                    SELECT a.stage FROM attempts AS a WHERE a.delivery_id = v_mail.id
                    ORDER BY a.attempt_no DESC, a.finished_at DESC LIMIT 1) IN ('connect', 'tls', 'login') THEN 'relay'
                ELSE 'retry' END
            WHEN v_mail.dated_at > p_now THEN 'time'
            ELSE 'hold'
        END;
    END IF;
    IF NOT EXISTS (SELECT FROM workers AS w WHERE w.seen_at > p_now - interval '2 minutes') THEN
        RETURN 'worker';
    END IF;
    IF v_mail.channel = 'webhook' THEN
        RETURN 'turn';
    END IF;
    IF EXISTS (
        SELECT FROM room_limits AS l, allowances AS a
        WHERE a.holder = 'sent' AND a.day = (p_now AT TIME ZONE 'UTC')::date AND a.day_used >= l.daily_quota
    ) THEN
        RETURN 'quota';
    END IF;
    RETURN coalesce(sender_shortage(v_mail.lane, p_now), 'turn');
END
$$;
