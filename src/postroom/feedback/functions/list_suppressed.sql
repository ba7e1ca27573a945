-- Write the rows behind bounce_list and unsubscribe_list of some addresses from their suppressions. `postroom.follows`
-- stops the triggers of these tables from writing the suppressions back.
CREATE OR REPLACE FUNCTION list_suppressed(p_addresses text[]) RETURNS void
LANGUAGE plpgsql
SET jit = off -- compiling would cost more than the few rows of a batch
SET enable_nestloop = on -- each address is one look-up
AS $$
BEGIN
    PERFORM set_config('postroom.follows', 'on', true);
    DELETE FROM bounced_addresses AS b
    WHERE b.email = ANY (p_addresses) AND NOT EXISTS (
        SELECT FROM suppressions AS s
        WHERE s.address = b.email AND s.reason IN ('hard_bounce', 'soft_bounce', 'complaint'));
    INSERT INTO bounced_addresses AS b (
        email, bounce_type, bounce_reason, bounce_code, sender_account_id, campaign_id, first_bounced_at,
        last_bounced_at, bounce_count
    )
    SELECT DISTINCT ON (s.address) s.address,
        CASE s.reason WHEN 'hard_bounce' THEN 'hard' WHEN 'soft_bounce' THEN 'soft' ELSE 'complaint' END,
        coalesce(s.detail, s.origin), s.code, s.sender_account_id, s.campaign_id::text, s.first_seen_at, s.last_seen_at,
        greatest(s.bounce_count, 1)
    FROM suppressions AS s
    WHERE s.address = ANY (p_addresses) AND s.reason IN ('hard_bounce', 'soft_bounce', 'complaint')
    ORDER BY s.address, s.reason DESC
    ON CONFLICT (email) DO UPDATE
    SET bounce_type = excluded.bounce_type, bounce_reason = excluded.bounce_reason, bounce_code = excluded.bounce_code,
        sender_account_id = excluded.sender_account_id, campaign_id = coalesce(excluded.campaign_id, b.campaign_id),
        first_bounced_at = excluded.first_bounced_at, last_bounced_at = excluded.last_bounced_at,
        bounce_count = excluded.bounce_count;

    DELETE FROM unsubscribed_addresses AS u
    WHERE u.email = ANY (p_addresses) AND NOT EXISTS (
        SELECT FROM suppressions AS s WHERE s.address = u.email AND s.reason = 'unsubscribe');
    INSERT INTO unsubscribed_addresses AS u (
        email, unsubscribe_reason, campaign_id, user_agent, ip_address, unsubscribed_at)
    SELECT DISTINCT ON (s.address) s.address, coalesce(s.detail, s.origin), s.campaign_id::text, link.user_agent,
        link.ip_address, s.created_at
    FROM suppressions AS s
    LEFT JOIN unsubscriptions AS link ON link.email = s.address AND link.resubscribed_at IS NULL
    WHERE s.address = ANY (p_addresses) AND s.reason = 'unsubscribe'
    ORDER BY s.address, s.created_at
    ON CONFLICT (email) DO UPDATE
    SET unsubscribe_reason = excluded.unsubscribe_reason, unsubscribed_at = excluded.unsubscribed_at,
        campaign_id = coalesce(excluded.campaign_id, u.campaign_id),
        user_agent = coalesce(excluded.user_agent, u.user_agent),
        ip_address = coalesce(excluded.ip_address, u.ip_address);
    PERFORM set_config('postroom.follows', '', true);
END
$$;

-- The suppressions of a room from before the lists. The triggers of
-- follow_suppressions.sql, made in this transaction, have locked the table, so that none is missed.
SELECT list_suppressed(ARRAY(SELECT address FROM suppressions))
WHERE NOT EXISTS (SELECT FROM bounced_addresses) AND NOT EXISTS (SELECT FROM unsubscribed_addresses);
