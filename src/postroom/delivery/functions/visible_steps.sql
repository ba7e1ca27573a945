-- The steps that are facts of the given types (empty: of any), and for each the transaction from which on it is one:
-- recorded_facts has both. NULL if no type is recorded.
CREATE OR REPLACE FUNCTION visible_steps(p_types text[], OUT steps delivery_step[], OUT since xid8[])
LANGUAGE sql STABLE
AS $$
    SELECT array_agg(known.step ORDER BY known.step), array_agg(recorded.since ORDER BY known.step)
    FROM unnest(enum_range(NULL::delivery_step)) AS known(step)
    JOIN recorded_facts AS recorded ON recorded.type = step_fact_type(known.step)
    WHERE p_types = '{}' OR recorded.type = ANY (p_types)
$$;
