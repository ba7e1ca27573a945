-- Now if tokens wait behind the cursor of the collector, otherwise NULL. As in count_waiting, tokens that an open
-- transaction holds back count.
CREATE OR REPLACE FUNCTION next_token_at() RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT now()
        FROM tokens
        WHERE (transaction_id, id) > (
            SELECT CASE WHEN last_transaction_id > pg_snapshot_xmin(pg_current_snapshot())
                THEN '0'::xid8 ELSE last_transaction_id END, cursor_id
            FROM jobs
            WHERE job_type = 'mailroom'
        )
        LIMIT 1
    );
END
$$;
