-- Whether the room came with a dump from a cluster that had counted further: its cursor, or a token that can be seen, stands
-- at a transaction that has not begun here.
CREATE OR REPLACE FUNCTION has_restored_tokens() RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
DECLARE
    v_next xid8 := pg_snapshot_xmax(pg_current_snapshot());
BEGIN
    RETURN EXISTS (SELECT FROM jobs WHERE last_transaction_id >= v_next)
        OR EXISTS (SELECT FROM tokens WHERE transaction_id >= v_next);
END
$$;
