-- Erase an address from the recipients of campaigns. A waiting recipient gets no mail and counts as suppressed. Locks
-- the campaigns' rows first, as every writer of recipients does. Returns the number of recipients.
CREATE OR REPLACE FUNCTION erase_campaigns(p_address text, p_pseudonym text) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_campaigns bigint[];
    v_erased    bigint;
BEGIN
    SELECT coalesce(array_agg(r.campaign_id ORDER BY r.campaign_id), '{}') INTO v_campaigns
    FROM campaigns AS c
        JOIN campaign_recipients AS r ON r.campaign_id = c.id AND lower(r.email) COLLATE "C" = p_address;
    PERFORM FROM campaigns WHERE id = ANY(v_campaigns) ORDER BY id FOR UPDATE;

    UPDATE campaigns AS c
    SET suppressed_count = c.suppressed_count + 1
    WHERE c.status <> 'cancelled' AND c.id IN ( -- a cancelled campaign has already counted its waiting recipients
        SELECT r.campaign_id
        FROM campaign_recipients AS r
        WHERE r.campaign_id = ANY(v_campaigns) AND lower(r.email) COLLATE "C" = p_address AND r.state = 'waiting'
    );
    -- An address that was erased, uploaded and erased again: the first pseudonym would violate the unique key.
    DELETE FROM campaign_recipients AS r
    WHERE r.campaign_id = ANY(v_campaigns) AND lower(r.email) COLLATE "C" = p_pseudonym;
    UPDATE campaign_recipients AS r
    SET email = p_pseudonym, name = NULL, custom_data = '{}',
        state = CASE WHEN r.state = 'waiting' THEN 'suppressed' ELSE r.state END
    WHERE r.campaign_id = ANY(v_campaigns) AND lower(r.email) COLLATE "C" = p_address;
    GET DIAGNOSTICS v_erased = ROW_COUNT;
    RETURN v_erased;
END
$$;
