-- Whether one address, in lower case, is in the list of suppressions by itself; find_erased looks for its pseudonym. The
-- planner inlines it in FROM.
CREATE OR REPLACE FUNCTION find_suppression(p_address text) RETURNS TABLE (is_listed boolean)
LANGUAGE sql STABLE
ROWS 1
AS $$
    SELECT EXISTS (SELECT FROM suppressions WHERE address = p_address)
$$;
