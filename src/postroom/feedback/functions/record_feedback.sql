-- Store any number of reports and apply them in the caller's transaction: a verified hard bounce or complaint
-- suppresses permanently, a soft bounce temporarily, an unsubscribe for bulk mail; a block of our server suppresses no
-- address. A known report changes nothing. Returns the number of new reports.
--  Soft bounces: the first p_holds of them hold the address for p_hold each, the next one suppresses it permanently.
-- Reports that arrive during a hold concern mail sent before it and do not count. An accepted mail resets the count if
-- nothing bounces for a week after it. A report that another recipient may have written holds for three times as long;
-- see report_effects.
CREATE OR REPLACE FUNCTION record_feedback(
    p_kind        text[],
    p_class       text[],
    p_delivery_id bigint[],
    p_address     text[],
    p_code        integer[],
    p_enhanced    text[],
    p_text        text[],
    p_is_verified boolean[],
    p_origin      text[],
    p_report_id   bytea[],
    p_reported_at timestamptz[],
    p_now         timestamptz DEFAULT now(),
    p_hold        interval    DEFAULT '24 hours',
    p_holds       integer     DEFAULT 3
) RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- compiling would cost more than the few rows of a batch
SET enable_nestloop = on -- whatever the session has set: each report is one look-up by its id
AS $$
DECLARE
    v_ids            bigint[];
    v_quiet          CONSTANT interval := '7 days'; -- relays return a mail after five days or less
    v_doubtful_holds CONSTANT integer := 3;
BEGIN
    WITH kept AS (
        INSERT INTO bounces (
            delivery_id, campaign_id, sender_account_id, reported_at, code, is_verified, kind, class, enhanced, address,
            origin, text, report_id
        )
        SELECT i.delivery_id, d.campaign_id, d.sender_account_id, coalesce(i.reported_at, p_now), i.code, i.is_verified,
            i.kind, i.class, i.enhanced, lower(i.address), i.origin, i.text, i.report_id
        FROM unnest(
            p_kind, p_class, p_delivery_id, p_address, p_code, p_enhanced, p_text, p_is_verified, p_origin, p_report_id,
            p_reported_at
        ) AS i(kind, class, delivery_id, address, code, enhanced, text, is_verified, origin, report_id, reported_at)
        LEFT JOIN deliveries AS d ON d.id = i.delivery_id
        ORDER BY i.report_id
        ON CONFLICT (report_id) DO NOTHING
        RETURNING id
    )
    SELECT array_agg(id) INTO v_ids FROM kept;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;

    PERFORM count_returned(array_agg(b.sender_account_id), p_now)
    FROM bounces AS b
    WHERE b.id = ANY(v_ids) AND b.is_verified AND b.kind = 'bounce' AND b.origin <> 'session'
        AND b.class IN ('recipient_hard', 'recipient_soft', 'unknown');

    INSERT INTO soft_bounces AS s (address, steps, last_step_at, handed_over_at)
    SELECT b.address, 1, p_now,
        max(d.finished_at) FILTER (WHERE d.state = 'sent' AND b.origin <> 'session')
    FROM report_effects(v_ids) AS effect
    JOIN bounces AS b USING (id)
    LEFT JOIN deliveries AS d ON d.id = b.delivery_id
    WHERE effect.reason = 'soft_bounce'
    GROUP BY b.address
    ORDER BY b.address COLLATE "C"
    ON CONFLICT (address) DO UPDATE
    SET steps = CASE
            WHEN s.accepted_at <= p_now - v_quiet AND excluded.handed_over_at IS DISTINCT FROM s.accepted_at THEN 1
            WHEN p_now < s.last_step_at + p_hold THEN s.steps
            ELSE least(s.steps + 1, 32767)
        END,
        last_step_at = CASE WHEN p_now < s.last_step_at + p_hold THEN s.last_step_at ELSE p_now END,
        accepted_at = NULL,
        handed_over_at = excluded.handed_over_at;

    -- The effects are read again: a concurrent report about another delivery is committed when its address is locked.
    PERFORM merge_suppressions(
        array_agg(b.address),
        array_agg(CASE WHEN b.kind = 'unsubscribe' THEN 'bulk' ELSE 'all' END),
        array_agg(effect.reason::text),
        array_agg(CASE
            WHEN effect.reason = 'soft_bounce' AND s.steps <= p_holds
                THEN s.last_step_at + p_hold * CASE WHEN effect.is_doubtful THEN v_doubtful_holds ELSE 1 END
        END),
        array_agg(b.origin), array_agg(b.campaign_id), array_agg(b.sender_account_id),
        array_agg(coalesce(b.enhanced, b.code::text)), array_agg(left(b.text, 500)), array_agg(1), p_now)
    FROM report_effects(v_ids) AS effect
    JOIN bounces AS b USING (id)
    LEFT JOIN soft_bounces AS s ON s.address = b.address
    HAVING count(*) > 0;

    PERFORM record_feedback_facts(v_ids, p_now);
    RETURN cardinality(v_ids);
END
$$;
