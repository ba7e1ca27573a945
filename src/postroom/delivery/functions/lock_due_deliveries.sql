-- Lock the due deliveries of a lane, oldest first, and return their order. A separate function, because a cached plan
-- estimates an unknown LIMIT as a tenth of the table and would read all of it instead of looking up five hundred rows:
-- here the index is used, and ROWS gives the calling statement its estimate.
--
-- Webhooks and mail are read separately, because mail may have to wait for an account: if both are due, a batch has
-- half of each, and at most p_webhook_limit webhooks (NULL: any), so that receivers that time out do not delay mail.
-- A claim holds no content. p_bytes keeps it from holding more mail than it can soon start. Webhooks are not weighed here,
-- because p_webhook_limit is one chunk; the worker cuts them into chunks by size before it reads their content (`chunks`).
-- With sender accounts or destination limits, lock_routed_mail selects the mail. p_bytes limits the content of the
-- mail, p_busy names accounts to leave out. Without p_with_mail only webhooks are locked.
CREATE OR REPLACE FUNCTION lock_due_deliveries(
    p_lane delivery_lane, p_limit integer, p_now timestamptz, p_use_senders boolean DEFAULT false,
    p_webhook_limit integer DEFAULT NULL, p_bytes bigint DEFAULT NULL, p_busy bigint[] DEFAULT '{}',
    p_with_mail boolean DEFAULT true
)
RETURNS TABLE (
    id bigint, ordinal bigint, claim_id bigint, sender_account_id bigint, start_in interval, send_delay interval,
    shaped_domain text, domain_connections integer
)
LANGUAGE plpgsql
ROWS 100
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- the index of the queue has the order, so that a claim reads only its rows
SET enable_bitmapscan = off -- it has no order
SET enable_sort = off -- it would read the whole queue before the first row
SET enable_hashjoin = off -- one look-up per locked row, in their order
SET enable_mergejoin = off -- the same reason
AS $$
#variable_conflict use_column
DECLARE
    v_webhooks integer;
    v_cancelled bigint[] := list_mail_to_cancel();
    v_routed   boolean := p_use_senders AND EXISTS (
        SELECT FROM sender_accounts AS a WHERE p_lane = ANY (a.lanes) AND a.paused_by IS DISTINCT FROM 'person');
BEGIN
    RETURN QUERY
    SELECT due.id, row_number() OVER (), NULL::bigint, NULL::bigint, NULL::interval, NULL::interval, NULL::text, NULL::integer
    FROM (
        SELECT w.id
        FROM due_deliveries AS w
        JOIN deliveries AS d ON d.id = w.id
        WHERE w.lane = p_lane AND w.channel = 'webhook' AND w.due_at <= p_now
            AND w.id <> ALL (v_cancelled) -- as in lock_due_mail
        ORDER BY w.due_at, w.id
        LIMIT least((p_limit + 1) / 2, p_webhook_limit)
        FOR UPDATE SKIP LOCKED
    ) AS due;
    GET DIAGNOSTICS v_webhooks = ROW_COUNT;
    IF NOT p_with_mail THEN
        RETURN;
    END IF;
    IF v_routed OR EXISTS (SELECT FROM destination_domains) THEN
        RETURN QUERY
        SELECT m.id, m.ordinal + v_webhooks, m.claim_id, m.sender_account_id, m.start_in, m.send_delay, m.shaped_domain,
            m.domain_connections
        FROM lock_routed_mail(p_lane, p_limit - v_webhooks, p_now, v_routed, p_bytes, p_busy) AS m;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT due.id, due.place + v_webhooks, NULL::bigint, NULL::bigint, NULL::interval, NULL::interval, NULL::text,
        NULL::integer
    FROM unnest(lock_due_mail(p_lane, p_limit - v_webhooks, p_now, p_bytes)) WITH ORDINALITY AS due(id, place);
END
$$;
