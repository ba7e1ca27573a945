-- Whether data can be read back everywhere: what it holds is nested at most 100 levels deep, and its numbers fit a double.
-- jsonb itself takes far more than programs do. To look at every number is dear, so the text has to show a long one first.
CREATE OR REPLACE FUNCTION is_event_data(p_data jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN NOT jsonb_path_exists(p_data, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")')
        AND NOT (p_data::text ~ '[0-9]{255}'
            AND jsonb_path_exists(p_data, 'strict $.** ? (@ > 1.797693134862315709e308 || @ < -1.797693134862315709e308)'));
END
$$;
