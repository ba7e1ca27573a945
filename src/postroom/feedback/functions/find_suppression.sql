-- Whether one address, in lower case, is in the list of suppressions, itself or by its pseudonym. The planner inlines it
-- in FROM.
CREATE OR REPLACE FUNCTION find_suppression(p_address text) RETURNS TABLE (is_listed boolean)
LANGUAGE sql STABLE
ROWS 1
AS $$
    SELECT EXISTS (SELECT FROM suppressions WHERE address = p_address)
        OR EXISTS (SELECT FROM suppressions WHERE address LIKE 'erased:%') AND find_erased(p_address)
$$;
