-- Whether more than about 4,000 deliveries have a value in their tags or custom data, by those of one delivery in 256; see
-- deliveries_data_idx. A value that ten million deliveries have takes less than a millisecond.
CREATE OR REPLACE FUNCTION has_frequent_data(p_value jsonb) RETURNS boolean
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- as rare_delivery_ids
SET enable_seqscan = off -- as rare_delivery_ids
SET gin_fuzzy_search_limit = 1000 -- the index scan returns about as many of 40,000, at random: enough to decide, never a result
AS $$
BEGIN
    RETURN (
        SELECT count(*) > 15
        FROM (
            SELECT
            FROM deliveries
            WHERE CASE WHEN hashint8(id) & 255 = 0 THEN '[]'::jsonb || coalesce(tags, '[]') || coalesce(custom_data, '[]') END
                    @> ('[]'::jsonb || p_value)
                AND (tags IS NOT NULL OR custom_data IS NOT NULL)
            LIMIT 16
        ) AS sampled);
END
$$;
