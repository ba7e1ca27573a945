-- The keys that a query locks exclusively; see lock_events. The rarest tag of an item, because it has the fewest waiters.
CREATE OR REPLACE FUNCTION event_query_keys(p_query jsonb) RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_item record;
    v_keys text[] := '{}';
BEGIN
    FOR v_item IN
        SELECT types, tags FROM event_query_items(p_query)
    LOOP
        IF (v_item.types <> '{}' OR v_item.tags <> '{}') AND can_match_steps(v_item.types, v_item.tags) THEN
            PERFORM refuse_step_condition();
        END IF;
        v_keys := v_keys || CASE
            WHEN cardinality(v_item.tags) = 1 THEN ARRAY[event_tag_key(v_item.tags[1])]
            WHEN cardinality(v_item.tags) > 0 THEN ARRAY[event_tag_key(rarest_tag(v_item.tags))]
            WHEN cardinality(v_item.types) > 0 THEN (SELECT array_agg('type ' || type) FROM unnest(v_item.types) AS t(type))
            ELSE '{*}'
        END;
    END LOOP;
    RETURN v_keys;
END
$$;
