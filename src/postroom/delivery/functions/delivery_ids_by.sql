-- The newest deliveries of a range of ids by the value of one column, named as in `DeliveryFilter`, each by an index of its own;
-- see listing/queries.sql for the conditions. Addresses are compared in any case. The hash of an address is compared in a
-- row, because the planner would take it as a constant that needs no order, and scan the primary key where a few
-- addresses get most mail.
CREATE OR REPLACE FUNCTION delivery_ids_by(p_column text, p_value text, p_before_id bigint, p_first_id bigint, p_limit bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- as newest_delivery_ids
AS $$
BEGIN
    CASE p_column
        WHEN 'recipient' THEN
            RETURN ARRAY(
                SELECT delivery_id
                FROM delivery_recipients
                WHERE (hashtext(lower(email)), delivery_id) < (hashtext(lower(p_value)), p_before_id)
                    AND (hashtext(lower(email)), delivery_id) >= (hashtext(lower(p_value)), p_first_id)
                    AND lower(email) = lower(p_value) AND kind <> 'reply_to'
                ORDER BY hashtext(lower(email)) DESC, delivery_id DESC
                LIMIT p_limit);
        WHEN 'recipient_domain' THEN
            RETURN ARRAY(
                SELECT delivery_id
                FROM delivery_recipients
                WHERE lower(split_part(email, '@', -1)) = lower(p_value) AND kind <> 'reply_to'
                    AND delivery_id >> 10 <= p_before_id >> 10 AND delivery_id >> 10 >= p_first_id >> 10
                    AND delivery_id + 0 < p_before_id AND delivery_id + 0 >= p_first_id
                ORDER BY delivery_id >> 10 DESC, delivery_id DESC
                LIMIT p_limit);
        WHEN 'source' THEN
            RETURN ARRAY(
                SELECT id
                FROM deliveries
                WHERE source = p_value
                    AND id >> 10 <= p_before_id >> 10 AND id >> 10 >= p_first_id >> 10
                    AND id + 0 < p_before_id AND id + 0 >= p_first_id
                ORDER BY id >> 10 DESC, id DESC
                LIMIT p_limit);
        WHEN 'template_id' THEN
            RETURN ARRAY(
                SELECT id
                FROM deliveries
                WHERE template_id = p_value
                    AND id >> 10 <= p_before_id >> 10 AND id >> 10 >= p_first_id >> 10
                    AND id + 0 < p_before_id AND id + 0 >= p_first_id
                ORDER BY id >> 10 DESC, id DESC
                LIMIT p_limit);
        WHEN 'campaign_id' THEN
            RETURN ARRAY(
                SELECT id
                FROM deliveries
                WHERE campaign_id = p_value::bigint
                    AND id >> 10 <= p_before_id >> 10 AND id >> 10 >= p_first_id >> 10
                    AND id + 0 < p_before_id AND id + 0 >= p_first_id
                ORDER BY id >> 10 DESC, id DESC
                LIMIT p_limit);
        WHEN 'endpoint_id' THEN
            RETURN ARRAY(
                SELECT id
                FROM deliveries
                WHERE endpoint_id = p_value::bigint
                    AND id >> 10 <= p_before_id >> 10 AND id >> 10 >= p_first_id >> 10
                    AND id + 0 < p_before_id AND id + 0 >= p_first_id
                ORDER BY id >> 10 DESC, id DESC
                LIMIT p_limit);
    END CASE;
END
$$;
