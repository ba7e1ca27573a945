-- Consume the newest token of an address by its code, or count a wrong guess: consume_code_at, now. This is what an
-- application's role is granted; it can choose neither the clock nor the spelling under which its guesses are counted.
CREATE OR REPLACE FUNCTION consume_code(p_email text, p_action token_action, p_code text)
RETURNS TABLE (verdict text, account bigint)
LANGUAGE plpgsql
SECURITY DEFINER -- who may guess need not be allowed to look
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY SELECT c.verdict, c.account FROM consume_code_at(p_email, p_action, p_code) AS c;
END
$$;
