-- After a dump came into a cluster that counts its transactions differently: order the tokens by this one's. Those that are
-- over are put before everything; those that may still be mailed into the present transaction, because what was written
-- here before anybody noticed cannot be told from what had been collected there. Nothing is mailed twice: a delivery
-- remembers its token. Whoever restores with `postroom restore` knows more; see adopt_restored_tokens.
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
    SET last_transaction_id = '0', last_seq = coalesce((SELECT max(id) FROM tokens WHERE transaction_id = '0'), 0)
    WHERE job_type = 'mailroom';
END
$$;
