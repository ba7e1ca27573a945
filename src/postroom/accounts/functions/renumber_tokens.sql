-- Reorder tokens that were restored from another cluster by the transaction ids of this one. Ended tokens get
-- transaction 0; live tokens get the current transaction, because tokens written here since cannot be distinguished
-- from tokens collected there. No token is mailed twice: its id is the idempotency key of its delivery. `postroom
-- restore` knows the cursor and uses adopt_restored_tokens instead. The lock on the job's row makes collectors wait
-- until the new order is committed.
CREATE OR REPLACE FUNCTION renumber_tokens() RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM FROM jobs WHERE job_type = 'mailroom' FOR UPDATE;
    UPDATE tokens
    SET transaction_id = CASE
        WHEN consumed_at IS NULL AND expires_at > extract(epoch FROM now()) THEN pg_current_xact_id() ELSE '0'
    END;
    UPDATE jobs
    SET last_transaction_id = '0', last_seq = coalesce((SELECT max(id) FROM tokens WHERE transaction_id = '0'), 0),
        last_id = NULL, outside = '{}'
    WHERE job_type = 'mailroom';
END
$$;
