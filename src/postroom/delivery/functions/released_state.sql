-- The state of a delivery that waits again, and of which its claim is not known to have composed a message: rendered if it was
-- rendered before, ahead of its time or in one of its finished attempts, otherwise queued. An attempt whose message was
-- composed has a transport and a Message-ID. Recovery adds Message-IDs to attempts without a transport: it does not know how
-- far the worker got.
-- PL/pgSQL, so that it is not inlined: `complete` would open every partition of attempts for each batch.
CREATE OR REPLACE FUNCTION released_state(p_delivery_id bigint, p_template_version_id bigint, p_attempt_count integer)
RETURNS delivery_state
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE
        WHEN p_template_version_id IS NOT NULL AND (
            EXISTS (
                SELECT FROM delivery_payloads AS p WHERE p.delivery_id = p_delivery_id AND p.rendered_at IS NOT NULL
            )
            OR p_attempt_count > 0 AND EXISTS (
                SELECT
                FROM attempts AS a
                WHERE a.delivery_id = p_delivery_id AND a.transport <> 'none' AND a.message_id IS NOT NULL
            )
        ) THEN 'rendered'
        ELSE 'queued'
    END::delivery_state;
END
$$;
