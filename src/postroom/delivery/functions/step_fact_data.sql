-- The data of the fact that a step is. A step made at acceptance has no attempt.
CREATE OR REPLACE FUNCTION step_fact_data(p_step all_steps) RETURNS jsonb
LANGUAGE sql STABLE
RETURN jsonb_build_object(
        'delivery', p_step.delivery_id, 'lane', p_step.lane, 'channel', p_step.channel, 'source', p_step.source)
    || CASE
        WHEN p_step.attempt_no IS NOT NULL THEN jsonb_build_object('attempt', p_step.attempt_no, 'reason', p_step.reason)
        WHEN p_step.reason IS NOT NULL THEN jsonb_build_object('reason', p_step.reason)
        ELSE '{}'
    END;
