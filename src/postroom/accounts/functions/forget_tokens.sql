-- One bounded step of retention: read the next tokens after an id, in the order of ids, and delete those that expired
-- before the retention time and that the collector has passed. Returns the number read, the last id and the number
-- deleted.
--
-- Scans the primary key, because an index on expiry would slow every sign-up. The cost of a step depends on p_limit
-- alone. SKIP LOCKED leaves locked tokens to the next round, so that a transaction that locks several cannot deadlock
-- with it.
CREATE OR REPLACE FUNCTION forget_tokens(
    p_after     bigint,
    p_limit     integer,
    p_retention interval,
    p_now       timestamptz DEFAULT now(),
    OUT looked_at integer,
    OUT last_id   bigint,
    OUT forgotten bigint
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- enable_seqscan = off inflates the estimated cost, which would trigger JIT compilation
SET enable_seqscan = off -- without statistics the planner would read all tokens in every step
SET plan_cache_mode = force_custom_plan -- a plan cached while the table was small would read whole indexes in every step
AS $$
DECLARE
    v_cursor jobs;
BEGIN
    SELECT count(*), max(id) INTO looked_at, last_id
    FROM (SELECT id FROM tokens WHERE id > p_after ORDER BY id LIMIT p_limit) AS step;
    SELECT * INTO STRICT v_cursor FROM jobs WHERE job_type = 'mailroom';
    DELETE FROM tokens
    WHERE id IN (
        SELECT id
        FROM tokens
        WHERE id > p_after AND id <= last_id
            AND expires_at < extract(epoch FROM p_now - p_retention)
            AND (transaction_id, id) <= (v_cursor.last_transaction_id, v_cursor.cursor_id)
        FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS forgotten = ROW_COUNT;
END
$$;
