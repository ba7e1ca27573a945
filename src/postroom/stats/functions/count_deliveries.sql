-- Count what attempts do not show: acceptance, and deliveries that end without an attempt. With count_attempts, every
-- mail counts as accepted once and as ended once: sent, refused, suppressed, cancelled or dead-lettered. A redriven
-- dead letter is subtracted again.
CREATE OR REPLACE FUNCTION count_deliveries() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that sends need not have write access to statistics
SET search_path FROM CURRENT
SET jit = off -- disabled plan types raise the cost estimate, which would trigger JIT compilation
SET enable_nestloop = off -- transition tables have no statistics, and a nested loop would compare every pair
AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO stat_deltas (hour, campaign_id, metric, amount) -- the domain would need a lookup of every recipient
        SELECT date_trunc('hour', created_at, 'UTC'), campaign_id, 'accepted', count(*)
        FROM new_rows
        WHERE channel = 'email'
        GROUP BY created_at, campaign_id;
        IF EXISTS (SELECT FROM new_rows WHERE state = 'suppressed') THEN
            INSERT INTO stat_deltas (hour, campaign_id, domain, metric, amount)
            SELECT date_trunc('hour', finished_at, 'UTC'), campaign_id, first_domain(id), 'suppressed', count(*)
            FROM new_rows
            WHERE channel = 'email' AND state = 'suppressed'
            GROUP BY 1, 2, 3;
        END IF;
    ELSIF EXISTS (SELECT FROM new_rows WHERE state IN ('failed', 'dead_letter', 'cancelled', 'suppressed'))
        OR EXISTS (SELECT FROM old_rows WHERE state = 'dead_letter')
    THEN -- excludes claims, renderings, and mail that was sent normally
        WITH step AS MATERIALIZED (
            SELECT n.id, n.campaign_id, n.sender_account_id, o.state AS old_state, n.state AS new_state,
                date_trunc('hour', coalesce(n.finished_at, n.next_attempt_at), 'UTC') AS hour
            FROM new_rows AS n
            JOIN old_rows AS o USING (id)
            WHERE n.channel = 'email' AND n.state <> o.state
                AND (o.state <> 'sending' OR n.state = 'dead_letter') -- every other end of an attempt is the attempt's
        )
        INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, metric, amount)
        SELECT hour, campaign_id, sender_account_id, first_domain(id), metric, sum(amount)
        FROM (
            SELECT *, 1 AS amount, CASE new_state
                WHEN 'failed' THEN 'refused'
                WHEN 'dead_letter' THEN 'dead_lettered'
                ELSE new_state::text
            END AS metric
            FROM step
            WHERE new_state IN ('sent', 'failed', 'dead_letter', 'cancelled', 'suppressed')
            UNION ALL
            SELECT *, -1, 'dead_lettered'
            FROM step
            WHERE old_state = 'dead_letter'
        ) AS counted
        GROUP BY 1, 2, 3, 4, 5;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER deliveries_insert_counts
    AFTER INSERT ON deliveries
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION count_deliveries();

CREATE OR REPLACE TRIGGER deliveries_update_counts
    AFTER UPDATE ON deliveries
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION count_deliveries();
