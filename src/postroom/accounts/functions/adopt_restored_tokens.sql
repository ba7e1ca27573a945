-- Let the collector of tokens continue after a restore from a backup. Tokens are ordered by transaction ids of the
-- cluster that wrote them, which are invalid in another cluster. Collected tokens get transaction 0, the others the
-- current transaction in the order of their ids; the cursor is set between them. Returns the number of waiting tokens.
CREATE OR REPLACE FUNCTION adopt_restored_tokens() RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_cursor  jobs;
    v_waiting bigint;
BEGIN
    -- Collectors wait until the new order is committed.
    SELECT * INTO v_cursor FROM jobs WHERE job_type = 'mailroom' FOR UPDATE;
    UPDATE tokens
    SET transaction_id = pg_current_xact_id()
    WHERE (transaction_id, id) > (v_cursor.last_transaction_id, v_cursor.cursor_id);
    GET DIAGNOSTICS v_waiting = ROW_COUNT;
    UPDATE tokens SET transaction_id = '0' WHERE transaction_id <> pg_current_xact_id();
    UPDATE jobs
    SET last_transaction_id = '0', last_seq = coalesce((SELECT max(id) FROM tokens WHERE transaction_id = '0'), 0),
        last_id = NULL, outside = '{}'
    WHERE job_type = 'mailroom';
    RETURN v_waiting;
END
$$;
