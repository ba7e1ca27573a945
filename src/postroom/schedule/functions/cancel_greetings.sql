-- Whoever forgets a person, by whatever way: a greeting that was handed over and still waits to leave does not leave.
CREATE OR REPLACE FUNCTION cancel_greetings() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- who may forget a person need not be allowed to touch deliveries
SET search_path FROM CURRENT -- a person may be forgotten on a connection that is not ours
AS $$
BEGIN
    UPDATE deliveries
    SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'person_deleted'
    WHERE id IN (
        SELECT delivery_id
        FROM scheduled_events
        WHERE user_id = OLD.id AND status = 'PROCESSING' AND delivery_id IS NOT NULL
    )
        AND state IN ('queued', 'rendered');
    RETURN OLD;
END
$$;

CREATE OR REPLACE TRIGGER cancel_greetings
    BEFORE DELETE ON users
    FOR EACH ROW
    EXECUTE FUNCTION cancel_greetings();
