-- True if the room was restored from a cluster with higher transaction ids: its cursor or a visible token has a
-- transaction id that this cluster has not assigned yet.
CREATE OR REPLACE FUNCTION has_restored_tokens() RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off -- without statistics the planner would read all tokens
AS $$
DECLARE
    v_next xid8 := pg_snapshot_xmax(pg_current_snapshot());
BEGIN
    RETURN EXISTS (SELECT FROM jobs WHERE last_transaction_id >= v_next)
        OR EXISTS (SELECT FROM tokens WHERE transaction_id >= v_next);
END
$$;
