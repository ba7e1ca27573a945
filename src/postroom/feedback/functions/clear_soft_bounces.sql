-- Clear the hold after soft bounces of an address that received a mail. Usually no row exists, and this is one lookup
-- in a nearly empty index. The count of soft bounces stays until the success is confirmed: an accepted mail may be
-- returned an hour later. Returns the number of cleared addresses.
CREATE OR REPLACE FUNCTION clear_soft_bounces(p_address text[], p_now timestamptz DEFAULT now()) RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- compiling would cost more than the few rows of a batch
AS $$
DECLARE
    v_cleared text[];
BEGIN
    IF NOT EXISTS (SELECT FROM suppressions WHERE reason = 'soft_bounce') THEN
        RETURN 0;
    END IF;
    WITH found AS MATERIALIZED ( -- one lock order for all callers prevents deadlocks
        SELECT s.address, s.scope
        FROM suppressions AS s
        WHERE s.reason = 'soft_bounce' AND s.address = ANY(ARRAY(SELECT lower(a) FROM unnest(p_address) AS a))
        ORDER BY s.address COLLATE "C"
        FOR UPDATE
    ),
    gone AS (
        DELETE FROM suppressions AS s
        USING found
        WHERE s.address = found.address AND s.scope = found.scope AND s.reason = 'soft_bounce'
        RETURNING s.address
    )
    SELECT array_agg(address) INTO v_cleared FROM gone;
    UPDATE soft_bounces SET cleared_at = p_now WHERE address = ANY(v_cleared);
    RETURN coalesce(cardinality(v_cleared), 0);
END
$$;
