-- The step that a transition makes; NULL for rendering, claiming and releasing, which make no step.
CREATE OR REPLACE FUNCTION delivery_step_of(p_old delivery_state, p_new delivery_state, p_attempts_taken_back integer)
RETURNS delivery_step
LANGUAGE sql IMMUTABLE
RETURN CASE p_new
    WHEN 'sent' THEN 'sent'
    WHEN 'failed' THEN 'failed'
    WHEN 'dead_letter' THEN 'dead_lettered'
    WHEN 'cancelled' THEN 'cancelled'
    WHEN 'suppressed' THEN 'suppressed'
    ELSE CASE
        WHEN p_old = 'sending' AND p_new <> 'sending' AND p_attempts_taken_back = 0 THEN 'deferred'
        WHEN p_old = 'dead_letter' THEN 'redriven'
    END
END::delivery_step;
