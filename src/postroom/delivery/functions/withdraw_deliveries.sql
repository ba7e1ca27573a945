-- Stop deliveries whose cause was deleted: cancel the waiting ones, let an attempt in progress be the last, and delete
-- dead letters, so that an operator can no longer redrive them.
CREATE OR REPLACE FUNCTION withdraw_deliveries(p_ids bigint[], p_reason text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    -- Deliveries before their dead letters and in the order of their ids, as every other writer: no deadlock.
    PERFORM FROM deliveries WHERE id = ANY(p_ids) ORDER BY id FOR UPDATE;
    DELETE FROM dead_letters WHERE delivery_id = ANY(p_ids);
    UPDATE deliveries SET expires_at = now() WHERE id = ANY(p_ids) AND state = 'sending';
    PERFORM cancel_deliveries(p_ids, p_reason);
END
$$;
