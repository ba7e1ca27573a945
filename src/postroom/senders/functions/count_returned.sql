-- Count bounces that arrive after the session against the accounts that sent the mail, as a refusal in the session is
-- counted. One element per bounce; NULL for mail without an account.
CREATE OR REPLACE FUNCTION count_returned(p_account_ids bigint[], p_now timestamptz) RETURNS void
LANGUAGE sql
AS $$
    WITH counted AS (
        UPDATE sender_accounts AS a
        SET daily_bounces = a.daily_bounces + returned.bounces
        FROM (SELECT id, count(*) AS bounces FROM unnest(p_account_ids) AS i(id) GROUP BY id) AS returned
        WHERE a.id = returned.id
        RETURNING a.id, returned.bounces
    )
    INSERT INTO sender_health AS h (account_id, bucket, bounces)
    SELECT id, date_bin('5 minutes', p_now, 'epoch'), bounces
    FROM counted
    ORDER BY id
    ON CONFLICT (account_id, bucket) DO UPDATE
    SET bounces = h.bounces + excluded.bounces
$$;
