-- True if all clients can read the data: nested at most 100 levels deep, and all numbers fit a double. jsonb itself
-- accepts far more. Checking every number is expensive, so it is done only if the text contains a long one.
CREATE OR REPLACE FUNCTION is_event_data(p_data jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN NOT jsonb_path_exists(p_data, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")')
        AND NOT (p_data::text ~ '[0-9]{255}'
            AND jsonb_path_exists(p_data, 'strict $.** ? (@ > 1.797693134862315709e308 || @ < -1.797693134862315709e308)'));
END
$$;
