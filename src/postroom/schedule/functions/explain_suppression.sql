-- Why a suppressed delivery was not sent, as the failure reason of its event. The delivery itself records only that its
-- recipient was suppressed; the suppression that stands has the cause.
CREATE OR REPLACE FUNCTION explain_suppression(p_delivery_id bigint) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT -- a delivery may be ended on a connection that is not ours
AS $$
BEGIN
    RETURN 'suppressed: ' || coalesce(
        (
            SELECT CASE s.reason
                    WHEN 'unsubscribe' THEN 'the person has unsubscribed from bulk mail'
                    WHEN 'complaint' THEN 'the person has reported mail as spam'
                    WHEN 'hard_bounce' THEN 'mail to this address bounces permanently'
                    WHEN 'soft_bounce' THEN 'mail to this address bounces at the moment'
                    ELSE 'an operator has suppressed this address'
                END
            FROM delivery_recipients AS r
            JOIN suppressions AS s ON s.address = ANY (ARRAY[lower(r.email), erased_address(r.email)])
            WHERE r.delivery_id = p_delivery_id
            ORDER BY s.scope DESC -- a suppression of all mail before one of bulk mail
            LIMIT 1
        ),
        'the address was suppressed when the mail was to be sent'
    );
END
$$;
