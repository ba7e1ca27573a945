-- The counts of the steps that the rollup has not reached: usually those of the last two seconds.
CREATE OR REPLACE FUNCTION later_counts() RETURNS TABLE (
    hour timestamptz, campaign_id bigint, sender_account_id bigint, domain text, template_id text, tags text[],
    metric text, amount bigint
)
LANGUAGE sql STABLE
AS $$
    SELECT counted.*
    FROM stats_cursor AS c, count_steps(c.transaction_id, c.position, '18446744073709551615', 9223372036854775807) AS counted
$$;
