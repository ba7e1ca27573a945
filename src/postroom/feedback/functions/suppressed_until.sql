-- The time until which an address gets no mail in a lane. NULL: not suppressed; infinity: suppressed; otherwise the end
-- of a hold after a soft bounce, which applies to bulk mail only. An erased address is found by its pseudonym. The
-- planner inlines the function in FROM, because it is STABLE and has no SET clause: accepting and claiming mail call it
-- once per recipient.
CREATE OR REPLACE FUNCTION suppressed_until(p_address text, p_lane delivery_lane, p_now timestamptz)
RETURNS TABLE (until timestamptz)
LANGUAGE sql STABLE
AS $$
    SELECT max(coalesce(CASE WHEN s.reason = 'soft_bounce' THEN s.until END, 'infinity'))
    FROM suppressions AS s
    WHERE s.address = ANY (ARRAY[
            lower(p_address),
            CASE WHEN (SELECT EXISTS (SELECT FROM suppressions WHERE address LIKE 'erased:%')) -- runs once, by its index
                THEN erased_address(p_address) END])
        AND (s.scope = 'all' OR p_lane = 'bulk')
        AND (s.until IS NULL OR s.until > p_now)
        AND (s.until IS NULL OR s.reason <> 'soft_bounce' OR p_lane = 'bulk')
$$;
