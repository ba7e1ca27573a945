-- Request a new token by address: request_token_at with the current time. Grant this function to applications: it does
-- not let them choose the clock or the spelling under which requests are counted.
CREATE OR REPLACE FUNCTION request_token(p_email text, p_action token_action) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER -- a role that requests tokens may lack the right to read them
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN request_token_at(p_email, p_action);
END
$$;
