-- Consume the newest token of an address by its code, or count a wrong guess; the fifth voids the token.
--
-- Says `consumed`, or why not: `wrong` (also for an address that nobody has), `expired` and `used` (only to who knows the
-- right code), `void`. A guess is counted in the caller's transaction, which therefore has to commit whatever is said.
-- Guesses at one token queue up behind its row's lock, so that a hundred at once are still five. An address without a
-- token is counted elsewhere and answers alike.
CREATE OR REPLACE FUNCTION consume_code(
    p_email  text,
    p_action token_action,
    p_code   text,
    p_now    timestamptz DEFAULT now()
) RETURNS TABLE (verdict text, account bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    c_guesses CONSTANT integer := 5;
    v_now     bigint := floor(extract(epoch FROM p_now));
    v_token   tokens;
    v_wrong   integer;
BEGIN
    SELECT t.* INTO v_token
    FROM tokens AS t
    JOIN accounts AS a ON a.id = t.account
    WHERE lower(a.email) = lower(p_email) AND t.action = p_action
    ORDER BY t.id DESC
    LIMIT 1
    FOR UPDATE OF t;

    IF v_token.id IS NULL THEN
        INSERT INTO address_limits AS l (address_hash, action, wrong_guesses, requests_from, touched_at)
        VALUES (sha256(convert_to(lower(p_email), 'UTF8')), p_action, 1, p_now, p_now)
        ON CONFLICT (address_hash, action) DO UPDATE
        SET wrong_guesses = least(l.wrong_guesses + 1, c_guesses + 1), touched_at = p_now
        RETURNING l.wrong_guesses INTO v_wrong;
        RETURN QUERY SELECT CASE WHEN v_wrong > c_guesses THEN 'void' ELSE 'wrong' END, NULL::bigint;
    ELSIF v_token.wrong_guesses >= c_guesses THEN
        RETURN QUERY SELECT 'void', NULL::bigint;
    ELSIF sha256(convert_to(v_token.code, 'UTF8')) <> sha256(convert_to(p_code, 'UTF8')) THEN
        UPDATE tokens AS t
        SET wrong_guesses = t.wrong_guesses + 1,
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
