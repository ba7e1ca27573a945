-- The newest mail to an address, in any case, in a range of ids. Compared as rows, the hash is not a constant by which the
-- planner needs no order: it would scan the primary key where a few addresses get most mail.
CREATE OR REPLACE FUNCTION delivery_ids_of_recipient(p_email text, p_before_id bigint, p_first_id bigint, p_limit bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- as newest_delivery_ids
AS $$
BEGIN
    RETURN ARRAY(
        SELECT delivery_id
        FROM delivery_recipients
        WHERE (hashtext(lower(email)), delivery_id) < (hashtext(lower(p_email)), p_before_id)
            AND (hashtext(lower(email)), delivery_id) >= (hashtext(lower(p_email)), p_first_id)
            AND lower(email) = lower(p_email) AND kind <> 'reply_to'
        ORDER BY hashtext(lower(email)) DESC, delivery_id DESC
        LIMIT p_limit);
END
$$;
