-- Withdraw the deliveries of a user or an occasion that is deleted; see withdraw_deliveries. The events that a deleted
-- occasion has completed stay with its user.
CREATE OR REPLACE FUNCTION cancel_greetings() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may delete a user needs no right on deliveries
SET search_path FROM CURRENT -- a user may be deleted on an application's connection
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    IF TG_TABLE_NAME = 'users' THEN
        v_ids := ARRAY(SELECT delivery_id FROM scheduled_events WHERE user_id = OLD.id AND delivery_id IS NOT NULL);
    ELSE
        -- The lock keeps the scheduler from enqueuing meanwhile. No row: the user is being deleted, and its trigger ran.
        PERFORM FROM users WHERE id = OLD.user_id FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN OLD;
        END IF;
        v_ids := ARRAY(SELECT delivery_id FROM scheduled_events WHERE occasion_id = OLD.id AND delivery_id IS NOT NULL);
    END IF;

    PERFORM withdraw_deliveries(v_ids, TG_ARGV[0]);
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
