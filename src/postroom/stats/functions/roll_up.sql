-- Add at most p_deltas deltas, which are deleted, and the steps after a place up to and including another to
-- their hours in both tables; returns the number of deltas. An hour has at most 200 templates, 200 values of a tag, and
-- 1000 values of a dimension; further ones count as `*` or `key=*`, the rarest of this call first. A rebuild names the months
-- that it counts, and those of them in which every mail still has its template and tags.
CREATE OR REPLACE FUNCTION roll_up(
    p_deltas integer, p_after_transaction_id xid8, p_after_position bigint, p_last_transaction_id xid8,
    p_last_position bigint, p_months timestamptz[] DEFAULT NULL, p_tagged_months timestamptz[] DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan -- otherwise every batch would be planned again
SET jit = off -- as in fold_stats
SET enable_seqscan = off -- as in fold_stats
SET enable_nestloop = off -- the planner expects few tags; with thousands, a nested loop would compare each with each
AS $$
DECLARE
    v_deltas integer;
BEGIN
    WITH taken AS (
        DELETE FROM stat_deltas
        WHERE ctid = ANY(ARRAY(SELECT ctid FROM stat_deltas LIMIT p_deltas))
        RETURNING hour, campaign_id, sender_account_id, domain, template_id, tags, metric, amount
    ),
    counted AS MATERIALIZED (
        SELECT hour, coalesce(campaign_id, 0) AS campaign_id, coalesce(sender_account_id, 0) AS sender_account_id, domain,
            template_id, tags, metric, amount
        FROM taken
        UNION ALL
        SELECT hour, campaign_id, sender_account_id, domain, template_id, tags, metric, amount
        FROM count_steps(p_after_transaction_id, p_after_position, p_last_transaction_id, p_last_position)
        WHERE p_months IS NULL OR date_trunc('month', hour, 'UTC') = ANY (p_months)
    ),
    hourly AS (
        INSERT INTO stats_hourly AS s (hour, campaign_id, sender_account_id, domain, metric, amount)
        SELECT hour, campaign_id, sender_account_id, domain, metric, sum(amount)
        FROM counted
        GROUP BY 1, 2, 3, 4, 5
        ON CONFLICT (hour, campaign_id, sender_account_id, domain, metric)
            DO UPDATE SET amount = s.amount + excluded.amount
    ),
    spread AS MATERIALIZED (
        SELECT v.dimension, v.value, c.hour, c.metric, sum(c.amount)::bigint AS amount
        FROM (
            SELECT hour, campaign_id, sender_account_id, template_id, tags, metric, sum(amount)::bigint AS amount
            FROM counted
            GROUP BY 1, 2, 3, 4, 5, 6
        ) AS c
        CROSS JOIN LATERAL dimension_values(c.campaign_id, c.sender_account_id, c.template_id, c.tags) AS v
        WHERE p_months IS NULL OR v.dimension NOT IN ('template', 'tag')
            OR date_trunc('month', c.hour, 'UTC') = ANY (p_tagged_months)
        GROUP BY 1, 2, 3, 4
    ),
    fresh AS MATERIALIZED ( -- templates and tags without a count in their hour
        SELECT s.dimension, s.hour, s.value, tag_prefix(s.value) AS prefix, sum(abs(s.amount)) AS amount
        FROM spread AS s
        WHERE s.dimension IN ('template', 'tag') AND s.value NOT IN ('', '*') AND (
            SELECT true
            FROM stats_dimension_hours AS h
            WHERE h.dimension = s.dimension AND h.hour = s.hour AND h.value = s.value
            LIMIT 1
        ) IS NULL
        GROUP BY 1, 2, 3
    ),
    stored AS MATERIALIZED ( -- values that their hours have already
        SELECT f.dimension, f.hour, s.prefix, s.values
        FROM (SELECT DISTINCT dimension, hour FROM fresh) AS f
        CROSS JOIN LATERAL (
            SELECT tag_prefix(h.value) AS prefix, count(DISTINCT h.value) AS values
            FROM stats_dimension_hours AS h
            WHERE h.dimension = f.dimension AND h.hour = f.hour
            GROUP BY 1
        ) AS s
    ),
    renamed AS (
        SELECT f.dimension, f.hour, f.value, CASE
            WHEN row_number() OVER (PARTITION BY f.dimension, f.hour ORDER BY f.amount DESC, f.value) + coalesce((
                SELECT sum(values) FROM stored AS s WHERE s.dimension = f.dimension AND s.hour = f.hour), 0) > 1000 THEN '*'
            WHEN row_number() OVER (PARTITION BY f.dimension, f.hour, f.prefix ORDER BY f.amount DESC, f.value) + coalesce((
                SELECT values FROM stored AS s
                WHERE s.dimension = f.dimension AND s.hour = f.hour AND s.prefix = f.prefix), 0) > 200 THEN f.prefix || '*'
            ELSE f.value
        END AS counted_as
        FROM fresh AS f
    ),
    dimensions AS (
        INSERT INTO stats_dimension_hours AS d (dimension, value, hour, metric, amount)
        SELECT s.dimension, coalesce(r.counted_as, s.value), s.hour, s.metric, sum(s.amount)
        FROM spread AS s
        LEFT JOIN renamed AS r ON r.dimension = s.dimension AND r.hour = s.hour AND r.value = s.value
        GROUP BY 1, 2, 3, 4
        ON CONFLICT (dimension, hour, value, metric) DO UPDATE SET amount = d.amount + excluded.amount
    )
    SELECT count(*) INTO v_deltas FROM taken;
    RETURN v_deltas;
END
$$;
