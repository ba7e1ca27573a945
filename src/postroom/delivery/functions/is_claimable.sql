-- True for a delivery that a worker may claim from next_attempt_at on: it waits and has content. The planner inlines
-- the
-- expression, which is the predicate of deliveries_due_idx.
CREATE OR REPLACE FUNCTION is_claimable(p_next_attempt_at timestamptz, p_state delivery_state, p_template_id text)
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT p_next_attempt_at IS NOT NULL AND (p_state = 'rendered' OR p_template_id IS NULL)
$$;
