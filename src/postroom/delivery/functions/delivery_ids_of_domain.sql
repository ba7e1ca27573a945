-- The newest mail with a recipient in a domain in a range of ids; see listing/queries.sql for its conditions.
CREATE OR REPLACE FUNCTION delivery_ids_of_domain(p_domain text, p_before_id bigint, p_first_id bigint, p_limit bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- as newest_delivery_ids
AS $$
BEGIN
    RETURN ARRAY(
        SELECT delivery_id
        FROM delivery_recipients
        WHERE lower(split_part(email, '@', -1)) = lower(p_domain) AND kind <> 'reply_to'
            AND delivery_id >> 10 <= p_before_id >> 10 AND delivery_id >> 10 >= p_first_id >> 10
            AND delivery_id + 0 < p_before_id AND delivery_id + 0 >= p_first_id
        ORDER BY delivery_id >> 10 DESC, delivery_id DESC
        LIMIT p_limit);
END
$$;
