-- Write a row into delivery_steps for each step that an UPDATE makes: the end of an attempt, an end without an attempt, a
-- redrive. Claims, renderings and releases are no steps.
CREATE OR REPLACE FUNCTION log_delivery_steps() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may send need not be allowed to write steps
SET search_path FROM CURRENT
SET jit = off -- the disabled nested loops raise the estimated cost, and the plan would be compiled
SET enable_hashjoin = off -- the index of attempts is the cheap way for any number of rows
AS $$
BEGIN
    IF EXISTS (SELECT FROM new_rows WHERE state NOT IN ('sending', 'rendered'))
        OR EXISTS (SELECT FROM old_rows WHERE state NOT IN ('queued', 'rendered'))
    THEN -- skips claims and renderings, the most frequent statements
        INSERT INTO delivery_steps (
            transaction_id, delivery_id, at, step, lane, channel, source, reason, attempt_no, campaign_id, sender_account_id,
            outcome, domain
        )
        SELECT (SELECT id FROM step_transaction()), n.id, coalesce(
                a.finished_at,
                CASE WHEN o.finished_at IS NULL THEN n.finished_at END,
                CASE WHEN n.finished_at IS NULL THEN n.dated_at END,
                now()),
            s.step, n.lane, n.channel, n.source, n.reason, n.attempt_count, n.campaign_id, n.sender_account_id, a.outcome,
            CASE WHEN n.channel = 'email' THEN coalesce(a.domain, nullif(first_domain(n.id), '')) END
        FROM new_rows AS n
        JOIN old_rows AS o USING (id)
        CROSS JOIN LATERAL (SELECT delivery_step_of(o.state, n.state, n.attempt_count - o.attempt_count) AS step) AS s
        LEFT JOIN attempts AS a ON a.delivery_id = n.id AND a.attempt_no = n.attempt_count AND o.state = 'sending'
        WHERE n.state <> o.state AND s.step IS NOT NULL;
        PERFORM wake_event_followers();
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER deliveries_update_steps
    AFTER UPDATE ON deliveries
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION log_delivery_steps();
