-- Keep the columns of an event consistent with its status and reject changes of an ended event, also for direct SQL.
CREATE OR REPLACE FUNCTION scheduled_events_guard() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.updated_at := now();
    IF OLD.status = NEW.status THEN
        RETURN NEW;
    END IF;
    IF OLD.status = 'COMPLETED' OR (OLD.status = 'FAILED' AND NEW.status <> 'COMPLETED') THEN
        RAISE EXCEPTION 'a scheduled event that is % cannot become %', OLD.status, NEW.status
            USING ERRCODE = 'PR031', COLUMN = 'status';
    END IF;
    IF NEW.status = 'PROCESSING' THEN
        NEW.lease_expires_at := coalesce(NEW.lease_expires_at, now() + interval '5 minutes');
    ELSE
        NEW.lease_expires_at := NULL;
        NEW.claim_id := NULL;
    END IF;
    IF NEW.status = 'COMPLETED' THEN
        NEW.executed_at := coalesce(NEW.executed_at, now());
        NEW.failure_reason := NULL;
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER scheduled_events_guard
    BEFORE UPDATE ON scheduled_events
    FOR EACH ROW
    EXECUTE FUNCTION scheduled_events_guard();
