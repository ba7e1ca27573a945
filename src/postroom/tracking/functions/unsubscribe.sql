-- Stop bulk mail to an address at the request of its owner, and store the evidence. A repeated call changes only the
-- reason, which the page asks for afterwards. True if the address was not unsubscribed before.
CREATE OR REPLACE FUNCTION unsubscribe(
    p_address text, p_delivery_id bigint, p_campaign_id bigint, p_origin text, p_ip_address inet, p_user_agent text,
    p_reason text DEFAULT NULL, p_now timestamptz DEFAULT now()
) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    v_address text   := lower(p_address);
    v_sender  bigint := (SELECT d.sender_account_id FROM deliveries AS d WHERE d.id = p_delivery_id);
    v_is_new  boolean;
BEGIN
    -- The evidence first: unsubscribe_list shows it with the suppression.
    INSERT INTO unsubscriptions (delivery_id, campaign_id, unsubscribed_at, ip_address, origin, email, user_agent)
    VALUES (p_delivery_id, p_campaign_id, p_now, p_ip_address, p_origin, v_address, p_user_agent)
    ON CONFLICT (email) WHERE resubscribed_at IS NULL DO NOTHING;
    v_is_new := FOUND;
    PERFORM merge_suppressions(
        p_address => ARRAY[v_address], p_scope => ARRAY['bulk'], p_reason => ARRAY['unsubscribe'],
        p_until => ARRAY[NULL::timestamptz], p_origin => ARRAY[p_origin], p_campaign_id => ARRAY[p_campaign_id],
        p_sender_account_id => ARRAY[v_sender], p_code => ARRAY[NULL::text], p_detail => ARRAY[p_reason],
        p_reports => ARRAY[0], p_now => p_now);

    IF NOT v_is_new THEN
        RETURN false;
    END IF;

    PERFORM add_stats(
        ARRAY[p_now], ARRAY[p_delivery_id], ARRAY[p_campaign_id], ARRAY[v_sender],
        ARRAY[split_part(v_address, '@', -1)], ARRAY['unsubscribed']);

    IF EXISTS (SELECT FROM recorded_facts WHERE type = 'RecipientUnsubscribed') THEN
        PERFORM append_facts('postroom.delivery', ARRAY['RecipientUnsubscribed'], ARRAY[p_delivery_id],
            ARRAY[jsonb_build_object('delivery', p_delivery_id, 'campaign', p_campaign_id, 'origin', p_origin)]);
    END IF;
    RETURN true;
END
$$;
