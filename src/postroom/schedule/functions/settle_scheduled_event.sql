-- End a scheduled event in the transaction that ends its delivery. The trigger has the condition, so that other
-- deliveries cost a comparison and no function call.
CREATE OR REPLACE FUNCTION settle_scheduled_event() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT -- an application's connection has another search path
AS $$
BEGIN
    UPDATE scheduled_events
    SET status = CASE WHEN NEW.state = 'sent' THEN 'COMPLETED' ELSE 'FAILED' END::scheduled_event_status,
        executed_at = NEW.finished_at,
        failure_reason = CASE
            WHEN NEW.reason = 'recipient_suppressed' THEN explain_suppression(NEW.id)
            WHEN NEW.state <> 'sent' THEN concat_ws(': ', NEW.reason, NEW.detail)
        END,
        -- never negative without an attempt; a redrive may add attempts beyond the column's limit of three
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
