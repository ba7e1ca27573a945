-- Erase an address from the ledger: from attempts, or from a detached or restored month of it. The attempt stays, with
-- the pseudonym as recipient; replies go, because they may name the person without the address; tags and custom data go
-- where the person was the only recipient. Returns the deliveries of the changed attempts.
CREATE OR REPLACE FUNCTION erase_attempts(p_table text, p_address text, p_pseudonym text) RETURNS bigint[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    EXECUTE format(
        $f$
            WITH erased AS (
                UPDATE %I
                SET recipient = CASE WHEN recipient = $1 THEN $2 ELSE recipient END,
                    other_recipients = array_replace(other_recipients, $1, $2),
                    reply_text = NULL,
                    message_id = erase_text(message_id, $1, $2),
                    idempotency_key = CASE WHEN strpos(lower(idempotency_key), $1) = 0 THEN idempotency_key END,
                    tags = CASE WHEN other_recipients IS NOT NULL THEN erase_tags(tags, $1, $2) END,
                    custom_data = CASE WHEN other_recipients IS NOT NULL THEN erase_text(custom_data::text, $1, $2)::jsonb END
                -- always true, and lets the planner use attempts_ledger_idx: see the view send_logs
                WHERE finished_at > '-infinity' AND (recipient = $1 OR other_recipients @> ARRAY[$1])
                RETURNING delivery_id
            )
            SELECT coalesce(array_agg(DISTINCT delivery_id), '{}') FROM erased
        $f$, p_table)
    INTO v_ids
    USING p_address, p_pseudonym;
    RETURN v_ids;
EXCEPTION WHEN undefined_table THEN
    RETURN '{}'; -- the archiver dropped this month since it was listed; its file is rewritten instead
END
$$;
