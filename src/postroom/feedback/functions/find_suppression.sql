-- Whether one address, in lower case, is in the list of suppressions, itself or by its pseudonym; p_has_erased: the mark of
-- the room (see event_clock). The planner inlines it in FROM.
CREATE OR REPLACE FUNCTION find_suppression(p_address text, p_has_erased boolean) RETURNS TABLE (is_listed boolean)
LANGUAGE sql STABLE
ROWS 1
AS $$
    SELECT EXISTS (SELECT FROM suppressions WHERE address = p_address) OR p_has_erased AND find_erased(p_address)
$$;
