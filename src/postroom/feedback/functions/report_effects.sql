-- The effect of stored reports on their addresses: the reason of a suppression, and whether it is only a hold. Reports
-- without effect are left out: unverified ones, blocks of our server, refusals without a reason, delays.
--  Every recipient of a mail knows its Message-ID and return path, and can write a report about another recipient. So a
-- report that came as a mail, about a delivery with several recipients, holds the address (`is_doubtful`); repeated for
-- the same delivery it has no effect. It suppresses if a report about another delivery says the same. A refusal in the
-- session and a provider's signed webhook suppress at once.
CREATE OR REPLACE FUNCTION report_effects(p_ids bigint[])
RETURNS TABLE (id bigint, reason suppression_reason, is_doubtful boolean)
LANGUAGE sql STABLE
AS $$
    SELECT b.id,
        CASE
            WHEN is_doubtful THEN 'soft_bounce'
            WHEN b.kind <> 'bounce' THEN b.kind
            WHEN b.class = 'recipient_hard' THEN 'hard_bounce'
            ELSE 'soft_bounce'
        END::suppression_reason,
        is_doubtful
    FROM bounces AS b
    CROSS JOIN LATERAL (
        SELECT b.kind <> 'unsubscribe' AND b.origin IN ('smtp', 'imap', 'ingest') AND EXISTS (
            SELECT
            FROM other_recipients AS r
            WHERE r.delivery_id = b.delivery_id AND r.kind <> 'reply_to'
        ) AS is_shared
    ) AS mail
    CROSS JOIN LATERAL (
        SELECT is_shared AND NOT EXISTS (
            SELECT
            FROM bounces AS other
            WHERE other.address = b.address AND other.is_verified AND other.delivery_id <> b.delivery_id
                AND (other.kind, other.class) IS NOT DISTINCT FROM (b.kind, b.class)
        ) AS is_doubtful
    ) AS doubt
    WHERE b.id = ANY(p_ids) AND b.is_verified AND b.address IS NOT NULL
        AND (b.kind <> 'bounce' OR b.class IN ('recipient_hard', 'recipient_soft', 'infrastructure'))
        AND NOT (is_shared AND EXISTS (
            SELECT
            FROM bounces AS earlier
            WHERE earlier.address = b.address AND earlier.delivery_id = b.delivery_id AND earlier.is_verified
                AND earlier.origin IN ('smtp', 'imap', 'ingest') AND earlier.id < b.id
        ))
$$;
