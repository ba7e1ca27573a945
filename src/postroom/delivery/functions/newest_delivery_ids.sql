-- The newest deliveries of a range of ids, or of those the ones accepted before a time. Listings run it for most pages; see
-- listing/queries.sql.
CREATE OR REPLACE FUNCTION newest_delivery_ids(
    p_before_id bigint, p_first_id bigint, p_created_before timestamptz, p_limit bigint
) RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- a plan does not know the limit, so in a large room each page would be planned again
AS $$
BEGIN
    RETURN ARRAY(
        SELECT id
        FROM deliveries
        WHERE id < p_before_id AND id >= p_first_id AND (p_created_before IS NULL OR created_at < p_created_before)
        ORDER BY id DESC
        LIMIT p_limit);
END
$$;
