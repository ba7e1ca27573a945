-- A person asks for a new token by address: request_token_at, now. This is what an application's role is granted; it can
-- choose neither the clock nor the spelling under which its requests are counted.
CREATE OR REPLACE FUNCTION request_token(p_email text, p_action token_action) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER -- who may ask for tokens need not be allowed to read them
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN request_token_at(p_email, p_action);
END
$$;
