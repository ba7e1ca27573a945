-- Suppress any number of addresses. An address that is already suppressed keeps the more severe reason and the later
-- end: soft bounce < manual < hard bounce < complaint, and a request of the person outranks an operator's. For repeated
-- soft bounces a new end replaces none; see record_feedback. Returns the number of written rows. p_reports: the number
-- of reports behind each suppression.
CREATE OR REPLACE FUNCTION merge_suppressions(
    p_address           text[],
    p_scope             text[],
    p_reason            text[],
    p_until             timestamptz[],
    p_origin            text[],
    p_campaign_id       bigint[],
    p_sender_account_id bigint[],
    p_code              text[],
    p_detail            text[],
    p_reports           integer[],
    p_now               timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- compiling would cost more than the few rows of a batch
AS $$
DECLARE
    v_written integer;
BEGIN
    INSERT INTO suppressions AS s (
        address, scope, reason, created_at, until, origin, campaign_id, sender_account_id, first_seen_at, last_seen_at,
        bounce_count, code, detail
    )
    SELECT address, scope, reason, p_now, until, origin, campaign_id, sender_account_id, p_now, p_now,
        reports, code, detail
    FROM (
        -- one row per key, the most severe: ON CONFLICT may not touch a row twice
        SELECT DISTINCT ON (lower(i.address), i.scope)
            lower(i.address) AS address, i.scope::suppression_scope AS scope, i.reason::suppression_reason AS reason,
            i.until, i.origin, i.campaign_id, i.sender_account_id, i.code, i.detail,
            sum(i.reports) OVER (PARTITION BY lower(i.address), i.scope) AS reports
        FROM unnest(
            p_address, p_scope, p_reason, p_until, p_origin, p_campaign_id, p_sender_account_id, p_code, p_detail, p_reports
        ) AS i(address, scope, reason, until, origin, campaign_id, sender_account_id, code, detail, reports)
        ORDER BY lower(i.address), i.scope, i.reason::suppression_reason DESC, i.until DESC NULLS FIRST
    ) AS gravest
    ORDER BY address COLLATE "C", scope -- one lock order for all callers prevents deadlocks
    ON CONFLICT (address, scope) DO UPDATE
    SET reason = CASE
            WHEN 'unsubscribe' IN (s.reason, excluded.reason) AND s.scope = 'bulk' THEN 'unsubscribe'
            ELSE greatest(s.reason, excluded.reason)
        END,
        until = CASE
            WHEN s.reason = 'soft_bounce' AND excluded.reason = 'soft_bounce' AND excluded.until IS NOT NULL
                THEN greatest(s.until, excluded.until)
            WHEN s.until IS NULL OR excluded.until IS NULL THEN NULL
            ELSE greatest(s.until, excluded.until)
        END,
        last_seen_at = greatest(s.last_seen_at, excluded.last_seen_at),
        bounce_count = s.bounce_count + excluded.bounce_count,
        -- origin and detail of the most severe report, and of the latest among equals
        origin = CASE WHEN excluded.reason >= s.reason THEN excluded.origin ELSE s.origin END,
        code = CASE WHEN excluded.reason >= s.reason THEN coalesce(excluded.code, s.code) ELSE s.code END,
        detail = CASE WHEN excluded.reason >= s.reason THEN coalesce(excluded.detail, s.detail) ELSE s.detail END,
        campaign_id = CASE
            WHEN excluded.reason >= s.reason THEN coalesce(excluded.campaign_id, s.campaign_id) ELSE s.campaign_id
        END,
        sender_account_id = CASE
            WHEN excluded.reason >= s.reason THEN coalesce(excluded.sender_account_id, s.sender_account_id)
            ELSE s.sender_account_id
        END;
    GET DIAGNOSTICS v_written = ROW_COUNT;
    RETURN v_written;
END
$$;
