-- The counts of the steps after a place, up to and including another. Webhooks are not mail and are not counted. A step
-- that ended an attempt counts by the outcome of the attempt, any other by itself; a dead letter counts as one until it
-- is redriven, or settled by an operator. Template and tags are those of the delivery. Plans use the order of steps,
-- whatever their number is.
CREATE OR REPLACE FUNCTION count_steps(
    p_after_transaction_id xid8, p_after_position bigint, p_last_transaction_id xid8, p_last_position bigint
) RETURNS TABLE (
    hour timestamptz, campaign_id bigint, sender_account_id bigint, domain text, template_id text, tags text[],
    metric text, amount bigint
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan -- planning would cost more than the few steps of two seconds
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
SET enable_bitmapscan = off -- the same reason
SET enable_mergejoin = off -- it would read all deliveries in the order of their ids
SET enable_hashjoin = off -- the same reason
AS $$
BEGIN
    RETURN QUERY
    SELECT g.hour, coalesce(g.campaign_id, 0), coalesce(g.sender_account_id, 0), coalesce(g.domain, ''), g.template_id,
        t.tags, c.metric, c.sign * g.steps
    FROM (
        SELECT date_trunc('hour', s.at, 'UTC') AS hour, s.campaign_id, s.sender_account_id, s.domain, d.template_id,
            d.tags, s.step, s.outcome, count(*) AS steps
        FROM all_steps AS s
        LEFT JOIN deliveries AS d ON d.id = s.delivery_id
        WHERE (s.transaction_id, s.position) > (p_after_transaction_id, p_after_position)
            AND (s.transaction_id, s.position) <= (p_last_transaction_id, p_last_position)
            AND s.channel = 'email'
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
    ) AS g
    CROSS JOIN LATERAL count_tags(g.tags) AS t
    CROSS JOIN LATERAL step_metrics(g.step, g.outcome) AS c;
END
$$;
