-- Count finished attempts to send mail by outcome: one row per campaign, sender and domain of a statement.
CREATE OR REPLACE FUNCTION count_attempts() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that finishes attempts need not have write access to statistics
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, metric, amount)
    SELECT date_trunc('hour', finished_at, 'UTC'), campaign_id, sender_account_id, domain,
        CASE outcome WHEN 'failed' THEN 'refused' ELSE outcome::text END, count(*)
    FROM new_attempts
    WHERE domain IS NOT NULL -- every mail has one, and no webhook
    -- Grouped by the time, which is constant within a statement, so that the hour is computed per group and not per
    -- row.
    GROUP BY finished_at, campaign_id, sender_account_id, domain, outcome;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER count_attempts
    AFTER INSERT ON attempts
    REFERENCING NEW TABLE AS new_attempts
    FOR EACH STATEMENT EXECUTE FUNCTION count_attempts();
