-- When a delivery of a scheduled event ends, so does the event, in the same transaction. The condition stands in the
-- trigger itself: every other delivery pays for a comparison and no function call.
CREATE OR REPLACE FUNCTION settle_scheduled_event() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT -- a delivery may be ended on a connection that is not ours
AS $$
BEGIN
    UPDATE scheduled_events
    SET status = CASE WHEN NEW.state = 'sent' THEN 'COMPLETED' ELSE 'FAILED' END::scheduled_event_status,
        executed_at = NEW.finished_at,
        failure_reason = CASE
            WHEN NEW.reason = 'recipient_suppressed' THEN explain_suppression(NEW.id)
            WHEN NEW.state <> 'sent' THEN concat_ws(': ', NEW.reason, NEW.detail)
        END,
        -- an attempt that never happened is no retry, and a redrive may have added more than three
        retry_count = least(greatest(NEW.attempt_count - 1, 0), 3),
        version = version + 1
    WHERE delivery_id = NEW.id
        AND (status = 'PROCESSING' OR (status = 'FAILED' AND NEW.state = 'sent'));
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER settle_scheduled_event
    AFTER UPDATE OF state ON deliveries
    FOR EACH ROW
    WHEN (NEW.source = 'schedule' AND NEW.finished_at IS NOT NULL AND OLD.state <> NEW.state)
    EXECUTE FUNCTION settle_scheduled_event();
