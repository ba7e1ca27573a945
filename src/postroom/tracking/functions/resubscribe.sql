-- Take back an unsubscription, and nothing else: an address that bounced or complained stays closed. True if there was one.
CREATE OR REPLACE FUNCTION resubscribe(p_address text, p_now timestamptz DEFAULT now()) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    v_address text := lower(p_address);
    v_found   boolean;
BEGIN
    PERFORM set_config('postroom.actor', 'recipient', true); -- for the history of suppressions
    DELETE FROM suppressions
    WHERE address = v_address AND scope = 'bulk' AND reason = 'unsubscribe';
    v_found := FOUND;
    UPDATE unsubscriptions
    SET resubscribed_at = p_now
    WHERE email = v_address AND resubscribed_at IS NULL;
    RETURN v_found OR FOUND;
END
$$;
