-- An array of p_count times its only element; any other array as it is. The planner inlines the function.
CREATE OR REPLACE FUNCTION repeat_single(p_values anyarray, p_count integer) RETURNS anyarray
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN cardinality(p_values) = 1 THEN array_fill(p_values[1], ARRAY[p_count]) ELSE p_values END
$$;
