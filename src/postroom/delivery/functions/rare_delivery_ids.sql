-- The deliveries with a value in their tags or, without tags, in their custom data, in no order; NULL if more than
-- `p_limit` have it. The value has one scalar: two frequent values would be read completely to find that no delivery has
-- both.
CREATE OR REPLACE FUNCTION rare_delivery_ids(p_tags jsonb, p_custom_data jsonb, p_limit bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- as newest_delivery_ids
SET enable_seqscan = off -- a value's statistics may promise that the first rows of the table have it
SET gin_fuzzy_search_limit = 0 -- a database may have one, and its pages would miss deliveries
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    IF has_frequent_data(coalesce(p_tags, p_custom_data)) THEN
        RETURN NULL;
    ELSIF p_tags IS NOT NULL THEN
        v_ids := ARRAY(SELECT id FROM deliveries WHERE tags @> p_tags LIMIT p_limit + 1);
    ELSE
        v_ids := ARRAY(SELECT id FROM deliveries WHERE custom_data @> p_custom_data LIMIT p_limit + 1);
    END IF;
    RETURN CASE WHEN cardinality(v_ids) <= p_limit THEN v_ids END;
END
$$;
