-- Whether suppressed_until() has to be asked for any of these addresses: one of them is in the list, or the list holds
-- erased addresses, which only their pseudonyms find. Most mail goes to addresses of which neither is true, and then
-- this look-up costs a third of suppressed_until(). The planner inlines it in FROM.
CREATE OR REPLACE FUNCTION find_suppressions(p_addresses text[]) RETURNS TABLE (is_listed boolean)
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (SELECT FROM suppressions WHERE address = ANY (lower(p_addresses::text)::text[]))
        OR EXISTS (SELECT FROM suppressions WHERE address LIKE 'erased:%')
$$;
