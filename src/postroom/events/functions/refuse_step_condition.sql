-- Reject a condition or idempotency query that names facts about deliveries: PR001. Deliveries take no locks of the
-- event store, so that sending never waits for an append: another transaction could commit such a fact after the check.
-- A condition on everything covers the events that are stored in `events`.
CREATE OR REPLACE FUNCTION refuse_step_condition() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'must not name facts about deliveries, which take no lock; append an event of your own when such a fact is published'
        USING ERRCODE = 'PR001', COLUMN = 'query';
END
$$;
