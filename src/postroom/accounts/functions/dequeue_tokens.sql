-- Take the next tokens to mail, oldest first, and advance the cursor past them. Both happen in the caller's
-- transaction, so they commit together with the deliveries or not at all.
--
-- The lock on the job's row serialises collectors. Only tokens of transactions below pg_snapshot_xmin are read: no
-- token can appear there later, so the cursor may pass. That horizon is the whole cluster's; a long write transaction
-- delays it, which measure_stall reports.
--
-- Tokens that another program dequeued are left out (keep_cursor).
--
-- A collector that advances the cursor notifies listeners: while batches are full, commits do not (wake_collectors),
-- and listeners outside must not miss tokens.
CREATE OR REPLACE FUNCTION dequeue_tokens(p_limit integer DEFAULT 10, p_now timestamptz DEFAULT now())
RETURNS TABLE (
    id bigint, action token_action, account bigint, email varchar, login varchar, secret bytea, code varchar,
    expires_at bigint, created_at bigint, locale varchar
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- enable_seqscan = off inflates the estimated cost, which would trigger JIT compilation
SET enable_seqscan = off -- without statistics the planner would read and sort all tokens
AS $$
#variable_conflict use_column
DECLARE
    v_transaction_id xid8;
    v_id             bigint;
    v_line           xid8;
    v_outside        outside_dequeue[];
BEGIN
    SELECT last_transaction_id, cursor_id, outside INTO STRICT v_transaction_id, v_id, v_outside
    FROM jobs
    WHERE job_type = 'mailroom'
    FOR UPDATE;

    IF has_restored_tokens() THEN
        PERFORM renumber_tokens();
        RETURN; -- waiting tokens now belong to this transaction; the next call reads them
    END IF;
    v_line := pg_snapshot_xmin(pg_current_snapshot());

    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT t.transaction_id, t.id, t.action, t.account, a.email, a.login, t.secret, t.code, t.expires_at,
            t.created_at, a.locale
        FROM tokens AS t,
            LATERAL (
                SELECT email, login, locale
                FROM accounts
                WHERE accounts.id = t.account
                    AND status = CASE t.action WHEN 'activation' THEN 'provisioned' ELSE 'active' END::account_status
                LIMIT 1
            ) AS a
        WHERE (t.transaction_id, t.id) > (v_transaction_id, v_id)
            AND t.transaction_id < v_line
            AND t.expires_at > extract(epoch FROM p_now)
            AND t.consumed_at IS NULL
            AND NOT EXISTS (
                SELECT FROM unnest(v_outside) AS o
                WHERE t.id > o.after_seq AND t.id <= o.through_seq AND pg_visible_in_snapshot(t.transaction_id, o.seen)
            )
        ORDER BY t.transaction_id, t.id
        LIMIT p_limit
    ),
    reached AS (
        -- A full batch ends at its last token. A batch that is not full has read everything below the horizon.
        (SELECT 1 AS choice, transaction_id, id FROM due ORDER BY transaction_id, id OFFSET p_limit - 1 LIMIT 1)
        UNION ALL
        (SELECT 2, transaction_id, id FROM tokens WHERE transaction_id < v_line ORDER BY 2 DESC, 3 DESC LIMIT 1)
        ORDER BY choice
        LIMIT 1
    ),
    advanced AS (
        UPDATE jobs
        SET last_transaction_id = reached.transaction_id, last_id = reached.id,
            last_seq = greatest(last_seq, reached.id, (SELECT max(id) FROM due)),
            outside = ARRAY(SELECT o FROM unnest(outside) AS o WHERE pg_snapshot_xmax(o.seen) > reached.transaction_id)
        FROM reached
        WHERE job_type = 'mailroom' AND (reached.transaction_id, reached.id) > (v_transaction_id, v_id)
    ),
    busy AS (
        UPDATE busy_jobs
        SET until = clock_timestamp() + interval '2 seconds'
        FROM reached
        WHERE job_type = 'mailroom' AND choice = 1
    )
    SELECT id, action, account, email, login, secret, code, expires_at, created_at, locale
    FROM due
    ORDER BY transaction_id, id;

    IF EXISTS (
        SELECT FROM jobs
        WHERE job_type = 'mailroom' AND (last_transaction_id, cursor_id) > (v_transaction_id, v_id)
    ) THEN
        NOTIFY token_insert;
    END IF;
END
$$;
