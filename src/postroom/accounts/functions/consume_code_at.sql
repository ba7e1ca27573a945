-- Consume the newest token of an address by its code, or count a wrong guess; the fifth voids the token.
--
-- Returns `consumed`, `wrong` (also for an address without an account), `expired` or `used` (only with the right code),
-- or `void` (five wrong codes since the last token, or twenty-five in a day; the link still works). Guesses are counted
-- per address, with or without an account or a token, so that the limit reveals neither. A guess is counted in the
-- caller's transaction, which must commit for every verdict. The lock on the address_limits row serialises guesses, so
-- that a hundred concurrent ones are still limited to five. p_spelling is another form of the address; see
-- request_token_at, also for rights.
CREATE OR REPLACE FUNCTION consume_code_at(
    p_email    text,
    p_action   token_action,
    p_code     text,
    p_now      timestamptz DEFAULT now(),
    p_spelling text DEFAULT NULL
) RETURNS TABLE (verdict text, account bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    c_guesses     CONSTANT integer := 5;
    c_day_guesses CONSTANT integer := 25; -- of 100,000 codes
    v_now         bigint := floor(extract(epoch FROM p_now));
    v_hash        bytea := sha256(convert_to(lower(p_email), 'UTF8'));
    v_token       tokens;
    v_is_over     boolean;
BEGIN
    -- Lock the account before its tokens, in the same order as a change of address or a deletion, to avoid deadlocks.
    PERFORM FROM accounts WHERE lower(email) IN (lower(p_email), lower(p_spelling)) ORDER BY id FOR NO KEY UPDATE;
    SELECT t.* INTO v_token
    FROM tokens AS t
    JOIN accounts AS a ON a.id = t.account
    WHERE lower(a.email) IN (lower(p_email), lower(p_spelling)) AND t.action = p_action
    ORDER BY t.id DESC
    LIMIT 1
    FOR UPDATE OF t; -- a concurrent use of the link consumes it once

    INSERT INTO address_limits AS l (address_hash, action, requests_from, day_from, touched_at, token)
    VALUES (v_hash, p_action, p_now, p_now, p_now, v_token.id)
    ON CONFLICT (address_hash, action) DO UPDATE
    SET wrong_guesses = CASE WHEN excluded.token > coalesce(l.token, 0) THEN 0 ELSE l.wrong_guesses END,
        token = greatest(l.token, excluded.token),
        day_guesses = CASE WHEN l.day_from <= p_now - interval '1 day' THEN 0 ELSE l.day_guesses END,
        day_from = CASE WHEN l.day_from <= p_now - interval '1 day' THEN p_now ELSE l.day_from END,
        touched_at = p_now
    RETURNING l.wrong_guesses >= c_guesses OR l.day_guesses >= c_day_guesses INTO v_is_over;

    IF v_is_over THEN
        RETURN QUERY SELECT 'void', NULL::bigint;
    ELSIF v_token.id IS NULL OR sha256(convert_to(v_token.code, 'UTF8')) <> sha256(convert_to(p_code, 'UTF8')) THEN
        UPDATE address_limits
        SET wrong_guesses = wrong_guesses + 1, day_guesses = day_guesses + 1
        WHERE address_hash = v_hash AND action = p_action;
        UPDATE tokens AS t
        SET wrong_guesses = least(t.wrong_guesses + 1, c_guesses),
            expires_at = CASE WHEN t.wrong_guesses + 1 >= c_guesses THEN least(t.expires_at, v_now) ELSE t.expires_at END
        WHERE t.id = v_token.id;
        RETURN QUERY SELECT 'wrong', NULL::bigint;
    ELSIF v_token.consumed_at IS NOT NULL THEN
        RETURN QUERY SELECT 'used', NULL::bigint;
    ELSIF v_token.expires_at <= v_now THEN
        RETURN QUERY SELECT 'expired', NULL::bigint;
    ELSE
        UPDATE tokens AS t SET consumed_at = v_now WHERE t.id = v_token.id;
        RETURN QUERY SELECT 'consumed', v_token.account;
    END IF;
END
$$;
