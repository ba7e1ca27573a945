-- The metrics that a step of a mail adds to: 1, or -1 for a dead letter that is one no more.
CREATE OR REPLACE FUNCTION step_metrics(p_step delivery_step, p_outcome attempt_outcome)
RETURNS TABLE (metric text, sign integer)
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN p_outcome = 'failed' OR (p_outcome IS NULL AND p_step = 'failed') THEN 'refused'
        ELSE coalesce(p_outcome::text, p_step::text)
    END, 1
    WHERE p_outcome IS NOT NULL OR p_step NOT IN ('dead_lettered', 'redriven', 'deferred')
    UNION ALL
    SELECT 'dead_lettered', CASE p_step WHEN 'dead_lettered' THEN 1 ELSE -1 END
    WHERE p_step IN ('dead_lettered', 'redriven') OR (p_step = 'sent' AND p_outcome IS NULL)
$$;
