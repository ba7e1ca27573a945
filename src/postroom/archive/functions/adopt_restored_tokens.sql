-- After a room came back from a backup: let the collector go on exactly where it was. Tokens are ordered by the transactions
-- of the cluster they were written in, which mean nothing in another. What had been collected is put before everything,
-- what had not is put into the present transaction, in the order of its ids; the cursor stands in between.
CREATE OR REPLACE FUNCTION adopt_restored_tokens() RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_cursor  jobs;
    v_waiting bigint;
BEGIN
    SELECT * INTO v_cursor FROM jobs WHERE job_type = 'mailroom' FOR UPDATE;
    UPDATE tokens
    SET transaction_id = pg_current_xact_id()
    WHERE (transaction_id, id) > (v_cursor.last_transaction_id, v_cursor.last_seq);
    GET DIAGNOSTICS v_waiting = ROW_COUNT;
    UPDATE tokens SET transaction_id = '0' WHERE transaction_id <> pg_current_xact_id();
    UPDATE jobs
    SET last_transaction_id = '0', last_seq = coalesce((SELECT max(id) FROM tokens WHERE transaction_id = '0'), 0)
    WHERE job_type = 'mailroom';
    RETURN v_waiting;
END
$$;
