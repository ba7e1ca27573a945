-- Count a token request of an address: true up to five times in 15 minutes, for addresses with and without an account.
-- A sign-up counts as well. A request within the limit resets the wrong guesses. p_email is the spelling that is
-- counted.
CREATE OR REPLACE FUNCTION count_request(
    p_email    text,
    p_action   token_action,
    p_now      timestamptz DEFAULT now(),
    p_spelling text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    c_requests CONSTANT integer  := 5;
    c_window   CONSTANT interval := '15 minutes';
    v_requests integer;
BEGIN
    INSERT INTO address_limits AS l (address_hash, action, requests, requests_from, day_from, touched_at, token)
    VALUES (
        sha256(convert_to(lower(p_email), 'UTF8')), p_action, 1, p_now, p_now, p_now,
        (
            SELECT max(t.id)
            FROM tokens AS t
            JOIN accounts AS a ON a.id = t.account
            WHERE lower(a.email) IN (lower(p_email), lower(p_spelling)) AND t.action = p_action
        )
    )
    ON CONFLICT (address_hash, action) DO UPDATE
    SET requests = CASE WHEN l.requests_from <= p_now - c_window THEN 1 ELSE least(l.requests + 1, c_requests + 1) END,
        requests_from = CASE WHEN l.requests_from <= p_now - c_window THEN p_now ELSE l.requests_from END,
        -- A new token resets the wrong guesses; an address without an account must behave the same.
        wrong_guesses = CASE
            WHEN l.requests_from <= p_now - c_window OR l.requests < c_requests THEN 0 ELSE l.wrong_guesses
        END,
        token = greatest(l.token, excluded.token),
        touched_at = p_now
    RETURNING l.requests INTO v_requests;
    RETURN v_requests <= c_requests;
END
$$;
