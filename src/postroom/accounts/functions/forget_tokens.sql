-- One bounded step of retention: look at the next tokens after an id, in the order of ids, and remove those that expired
-- long ago, as far as the collector has come. Says how many it looked at, the last id among them, and how many are gone.
--
-- No index finds tokens by expiry, because every sign-up would pay for it; the primary key is there anyway. What a step
-- costs depends on p_limit alone, however many tokens must stay. It waits for nobody: a token that somebody has locked is
-- left to the next round, so nobody who holds several can be caught in a deadlock with it.
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
SET jit = off -- a plan that avoids something counts as dear, and would be compiled
SET enable_seqscan = off
SET plan_cache_mode = force_custom_plan -- one from when the table was small would read whole indexes, again and again
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
            AND (transaction_id, id) <= (v_cursor.last_transaction_id, v_cursor.last_seq)
        FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS forgotten = ROW_COUNT;
END
$$;
