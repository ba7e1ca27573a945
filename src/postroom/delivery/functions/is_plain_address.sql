-- True for an address in its usual form: short, in lower case, without a name. Its pattern has no bounds, which make the
-- full pattern of parse_address cost as much as five INSERTs. The planner inlines the function.
CREATE OR REPLACE FUNCTION is_plain_address(p_value text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT length(p_value) < 60 AND p_value ~ '^[a-z0-9_+-]+(\.[a-z0-9_+-]+)*@([a-z0-9]+(-+[a-z0-9]+)*\.)+[a-z]+$'
$$;
