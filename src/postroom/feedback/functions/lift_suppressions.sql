-- Delete the suppressions of an address for one reason and in one scope, NULL for any; an erased address is found by
-- its pseudonym. Returns the deleted rows.
CREATE OR REPLACE FUNCTION lift_suppressions(
    p_address text, p_reason suppression_reason DEFAULT NULL, p_scope suppression_scope DEFAULT NULL
) RETURNS SETOF suppressions
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    DELETE FROM suppressions AS s
    WHERE s.address IN (lower(p_address), erased_address(p_address)) AND s.reason = coalesce(p_reason, s.reason)
        AND s.scope = coalesce(p_scope, s.scope)
    RETURNING s.*;
END
$$;
