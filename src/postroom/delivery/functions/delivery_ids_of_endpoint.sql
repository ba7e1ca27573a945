-- The newest webhooks to an endpoint in a range of ids; see listing/queries.sql for its conditions.
CREATE OR REPLACE FUNCTION delivery_ids_of_endpoint(p_endpoint_id bigint, p_before_id bigint, p_first_id bigint, p_limit bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- as newest_delivery_ids
AS $$
BEGIN
    RETURN ARRAY(
        SELECT id
        FROM deliveries
        WHERE endpoint_id = p_endpoint_id
            AND id >> 10 <= p_before_id >> 10 AND id >> 10 >= p_first_id >> 10
            AND id + 0 < p_before_id AND id + 0 >= p_first_id
        ORDER BY id >> 10 DESC, id DESC
        LIMIT p_limit);
END
$$;
