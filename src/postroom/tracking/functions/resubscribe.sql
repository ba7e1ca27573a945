-- Delete an unsubscription and its suppression; suppressions after a bounce or complaint stay. True if there was one.
CREATE OR REPLACE FUNCTION resubscribe(p_address text, p_now timestamptz DEFAULT now()) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    v_address text := lower(p_address);
    v_found   boolean;
BEGIN
    PERFORM set_config('postroom.actor', 'recipient', true); -- for the history of suppressions
    v_found := EXISTS (SELECT FROM lift_suppressions(v_address, 'unsubscribe', 'bulk'));
    UPDATE unsubscriptions
    SET resubscribed_at = p_now
    WHERE email = v_address AND resubscribed_at IS NULL;
    RETURN v_found OR FOUND;
END
$$;
