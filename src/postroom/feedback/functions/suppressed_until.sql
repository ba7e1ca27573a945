-- Until when no mail may go to an address in a lane: NULL, mail may go; infinity, the address is suppressed; otherwise the
-- end of a hold after a soft bounce, which only bulk mail waits for. An erased address is found by its pseudonym.
--
-- The planner inlines the function where it stands in FROM, because it is STABLE and has no SET clause: accepting and
-- claiming mail call it once per recipient.
CREATE OR REPLACE FUNCTION suppressed_until(p_address text, p_lane delivery_lane, p_now timestamptz)
RETURNS TABLE (until timestamptz)
LANGUAGE sql STABLE
AS $$
    SELECT max(coalesce(CASE WHEN s.reason = 'soft_bounce' THEN s.until END, 'infinity'))
    FROM suppressions AS s
    WHERE s.address = ANY (ARRAY[
            lower(p_address),
            CASE WHEN (SELECT erased_address('') IS NOT NULL) THEN erased_address(p_address) END]) -- the check runs once
        AND (s.scope = 'all' OR p_lane = 'bulk')
        AND (s.until IS NULL OR s.until > p_now)
        AND (s.until IS NULL OR s.reason <> 'soft_bounce' OR p_lane = 'bulk')
$$;
