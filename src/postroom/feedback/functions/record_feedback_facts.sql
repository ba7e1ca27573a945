-- Count new reports in the statistics and append their facts to the events, in the transaction that stores the reports.
-- `bounced` counts every bounce: a later bounce, which also counts as `returned`, and a refusal of the recipient in the
-- session, which the attempt also counts as refused. An unverified report is neither counted nor recorded. Facts
-- contain no address.
CREATE OR REPLACE FUNCTION record_feedback_facts(p_ids bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- compiling would cost more than the few rows of a batch
AS $$
DECLARE
    v_types text[];
    v_ids   bigint[];
    v_data  jsonb[];
BEGIN
    PERFORM add_stats(
        array_agg(p_now), array_agg(delivery_id), array_agg(campaign_id), array_agg(sender_account_id),
        array_agg(coalesce(split_part(address, '@', -1), '')), array_agg(metric))
    FROM bounces
    CROSS JOIN LATERAL unnest(CASE
        WHEN kind = 'complaint' THEN '{complained}'
        WHEN kind = 'unsubscribe' THEN '{unsubscribed}'
        WHEN class = 'transient' THEN '{}'
        WHEN origin <> 'session' THEN '{bounced,returned}'
        WHEN class IN ('recipient_hard', 'recipient_soft', 'unknown') THEN '{bounced}'
        ELSE '{}'
    END::text[]) AS metric
    WHERE id = ANY(p_ids) AND is_verified;

    FOR v_types, v_ids, v_data IN
        SELECT array_agg(type), array_agg(coalesce(delivery_id, id)), array_agg(data)
        FROM (
            SELECT id, delivery_id,
                CASE kind
                    WHEN 'bounce' THEN 'RecipientBounced'
                    WHEN 'complaint' THEN 'RecipientComplained'
                    ELSE 'RecipientUnsubscribed'
                END AS type,
                jsonb_strip_nulls(jsonb_build_object('bounce', id, 'delivery', delivery_id, 'campaign', campaign_id,
                    'class', class, 'code', code, 'enhanced', enhanced, 'origin', origin)) AS data
            FROM bounces
            WHERE id = ANY(p_ids) AND is_verified
        ) AS fact
        WHERE type IN (SELECT recorded.type FROM recorded_facts AS recorded)
        GROUP BY delivery_id IS NULL
    LOOP
        PERFORM append_facts(
            CASE WHEN v_data[1] ? 'delivery' THEN 'postroom.delivery' ELSE 'postroom.bounce' END, v_types, v_ids, v_data);
    END LOOP;
END
$$;
