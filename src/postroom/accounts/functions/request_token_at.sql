-- A person asks for a new token by address: an account of that address gets one, any other address nothing, and the caller
-- cannot tell which. The collector decides whether the token is mailed: an activation for a provisioned account, a recovery
-- for an active one. False if there were too many requests for the address, with or without an account.
--
-- For an address without an account the function inserts a token as well, undoes that, and notifies: the time it takes must
-- not give the answer away. Without this the medians differed by 0.9 ms (2.14 and 3.05 ms).
--
-- p_spelling is another way to write the address (bücher.example is xn--bcher-kva.example), under which an account may be
-- kept as well. Runs with the rights of its caller, who needs the tables themselves: whoever could choose the clock or the
-- counted spelling and nothing else would have no limits.
CREATE OR REPLACE FUNCTION request_token_at(
    p_email    text,
    p_action   token_action,
    p_now      timestamptz DEFAULT now(),
    p_spelling text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_account bigint;
BEGIN
    -- The account before its address_limits row, as in consume_code_at. An erasure that deletes the account waits; without
    -- this lock the INSERT below fails on its foreign key.
    PERFORM FROM accounts WHERE lower(email) IN (lower(p_email), lower(p_spelling)) ORDER BY id FOR KEY SHARE;
    IF NOT count_request(p_email, p_action, p_now, p_spelling) THEN
        RETURN false;
    END IF;
    SELECT id INTO v_account
    FROM accounts
    WHERE lower(email) IN (lower(p_email), lower(p_spelling))
    ORDER BY lower(email) = lower(p_email) DESC
    LIMIT 1;
    IF FOUND THEN
        INSERT INTO tokens (account, action, created_at, expires_at)
        VALUES (v_account, p_action, floor(extract(epoch FROM p_now)),
            floor(extract(epoch FROM p_now + interval '15 minutes')));
    ELSE
        BEGIN
            INSERT INTO tokens (account, action) VALUES (0, p_action);
            RAISE EXCEPTION USING ERRCODE = 'UNDO0';
        EXCEPTION
            WHEN SQLSTATE 'UNDO0' THEN
                PERFORM wake_collectors();
        END;
    END IF;
    RETURN true;
END
$$;
