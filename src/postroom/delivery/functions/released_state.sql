-- The state of a delivery that its claim releases before an attempt: rendered if its template has been rendered before,
-- in an earlier attempt or ahead of its time, otherwise queued.
CREATE OR REPLACE FUNCTION released_state(p_delivery_id bigint, p_template_version_id bigint, p_attempt_count integer)
RETURNS delivery_state
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN p_template_version_id IS NOT NULL AND (p_attempt_count > 1 OR EXISTS (
            SELECT FROM delivery_payloads AS p WHERE p.delivery_id = p_delivery_id AND p.rendered_at IS NOT NULL
        )) THEN 'rendered'
        ELSE 'queued'
    END::delivery_state
$$;
