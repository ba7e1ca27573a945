-- Record that another server accepted mail to these addresses. An acceptance is no proof of delivery, because a relay may
-- return the mail later: it ends no hold. It is noted as the first since the last soft bounce, which resets the count if
-- nothing bounces for a week; see record_feedback. A delivery whose bounce was quicker than the record of its acceptance
-- does not count. Holds that have ended are removed. Usually no row exists, and this is one look-up in a nearly empty
-- index. Returns the number of removed holds.
CREATE OR REPLACE FUNCTION record_acceptances(
    p_delivery_id bigint[], p_address text[], p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- compiling would cost more than the few rows of a batch
AS $$
DECLARE
    v_removed integer;
BEGIN
    IF NOT EXISTS (SELECT FROM suppressions WHERE reason = 'soft_bounce') THEN
        RETURN 0;
    END IF;
    -- The order of locks is that of record_feedback: soft_bounces before suppressions, each by address.
    WITH accepted AS MATERIALIZED (
        SELECT s.address
        FROM soft_bounces AS s
        WHERE s.accepted_at IS NULL AND s.address IN (
            SELECT lower(i.address)
            FROM unnest(p_delivery_id, p_address) AS i(delivery_id, address)
            WHERE NOT EXISTS (
                SELECT
                FROM bounces AS b
                WHERE b.delivery_id = i.delivery_id AND b.address = lower(i.address) AND b.is_verified
            )
        )
        ORDER BY s.address COLLATE "C"
        FOR UPDATE
    )
    UPDATE soft_bounces SET accepted_at = p_now WHERE address IN (SELECT a.address FROM accepted AS a);
    WITH ended AS MATERIALIZED (
        SELECT s.address, s.scope
        FROM suppressions AS s
        WHERE s.reason = 'soft_bounce' AND s.until <= p_now
            AND s.address = ANY(ARRAY(SELECT lower(a) FROM unnest(p_address) AS a))
        ORDER BY s.address COLLATE "C"
        FOR UPDATE
    )
    DELETE FROM suppressions AS s
    USING ended AS e
    WHERE s.address = e.address AND s.scope = e.scope;
    GET DIAGNOSTICS v_removed = ROW_COUNT;
    RETURN v_removed;
END
$$;
