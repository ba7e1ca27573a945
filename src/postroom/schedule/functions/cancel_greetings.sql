-- Whoever forgets a person or an occasion, by whatever way: what was handed over and has not left does not leave. What waits
-- is cancelled, what is just being sent is tried no second time, and nobody is asked about a dead letter any more, nor can
-- bring it back. What an occasion once sent stays among the events of its person.
CREATE OR REPLACE FUNCTION cancel_greetings() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- who may forget a person need not be allowed to touch deliveries
SET search_path FROM CURRENT -- a person may be forgotten on a connection that is not ours
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    IF TG_TABLE_NAME = 'users' THEN
        v_ids := ARRAY(SELECT delivery_id FROM scheduled_events WHERE user_id = OLD.id AND delivery_id IS NOT NULL);
    ELSE
        -- Held, nobody hands over one more meanwhile; gone, the occasion goes with its person, and all is done.
        PERFORM FROM users WHERE id = OLD.user_id FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN OLD;
        END IF;
        v_ids := ARRAY(SELECT delivery_id FROM scheduled_events WHERE occasion_id = OLD.id AND delivery_id IS NOT NULL);
    END IF;

    DELETE FROM dead_letters WHERE delivery_id = ANY(v_ids);
    UPDATE deliveries SET expires_at = now() WHERE id = ANY(v_ids) AND state = 'sending';
    UPDATE deliveries
    SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = TG_ARGV[0]
    WHERE id = ANY(v_ids) AND state IN ('queued', 'rendered');
    IF TG_TABLE_NAME = 'user_occasions' THEN
        UPDATE scheduled_events
        SET occasion_id = NULL
        WHERE occasion_id = OLD.id AND (delivery_id IS NOT NULL OR status IN ('COMPLETED', 'FAILED'));
    END IF;
    RETURN OLD;
END
$$;

CREATE OR REPLACE TRIGGER cancel_greetings
    BEFORE DELETE ON users
    FOR EACH ROW
    EXECUTE FUNCTION cancel_greetings('person_deleted');

CREATE OR REPLACE TRIGGER cancel_greetings
    BEFORE DELETE ON user_occasions
    FOR EACH ROW
    EXECUTE FUNCTION cancel_greetings('occasion_deleted');
