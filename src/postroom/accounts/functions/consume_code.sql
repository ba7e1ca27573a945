-- Consume the newest token of an address by its code, or count a wrong guess: consume_code_at with the current time.
-- Grant this function to applications: it does not let them choose the clock or the spelling under which guesses are
-- counted.
CREATE OR REPLACE FUNCTION consume_code(p_email text, p_action token_action, p_code text)
RETURNS TABLE (verdict text, account bigint)
LANGUAGE plpgsql
SECURITY DEFINER -- a role that checks codes may lack the right to read tokens
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY SELECT c.verdict, c.account FROM consume_code_at(p_email, p_action, p_code) AS c;
END
$$;
