-- A person asks for a new token by address: an account of that address gets one, any other address nothing, and nobody can
-- tell which. At most five in a quarter of an hour, counted for both. Whether it is mailed is the collector's to decide: an
-- activation for a provisioned account, a recovery for an active one.
CREATE OR REPLACE FUNCTION request_token(
    p_email  text,
    p_action token_action,
    p_now    timestamptz DEFAULT now()
) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    c_requests CONSTANT integer  := 5;
    c_window   CONSTANT interval := '15 minutes';
    v_requests integer;
BEGIN
    INSERT INTO address_limits AS l (address_hash, action, requests, requests_from, touched_at)
    VALUES (sha256(convert_to(lower(p_email), 'UTF8')), p_action, 1, p_now, p_now)
    ON CONFLICT (address_hash, action) DO UPDATE
    SET requests = CASE WHEN l.requests_from <= p_now - c_window THEN 1 ELSE least(l.requests + 1, c_requests + 1) END,
        requests_from = CASE WHEN l.requests_from <= p_now - c_window THEN p_now ELSE l.requests_from END,
        -- A new token is guessed anew; an address that gets none must look the same.
        wrong_guesses = CASE
            WHEN l.requests_from <= p_now - c_window OR l.requests < c_requests THEN 0 ELSE l.wrong_guesses
        END,
        touched_at = p_now
    RETURNING l.requests INTO v_requests;
    IF v_requests > c_requests THEN
        RETURN false;
    END IF;
    INSERT INTO tokens (account, action, created_at, expires_at)
    SELECT id, p_action, floor(extract(epoch FROM p_now)), floor(extract(epoch FROM p_now + interval '15 minutes'))
    FROM accounts
    WHERE lower(email) = lower(p_email);
    RETURN true;
END
$$;
