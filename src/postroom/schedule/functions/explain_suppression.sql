-- The failure reason of an event whose delivery was suppressed. The delivery records only that its recipient was
-- suppressed; the current suppression has the cause.
CREATE OR REPLACE FUNCTION explain_suppression(p_delivery_id bigint) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT -- an application's connection has another search path
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
