-- Delete the content of a delivery of the lane auth when it ends, and its fingerprint: its text and variables contain a one-time
-- code or a login link, and the fingerprint is a hash of them. A dead letter keeps its content until it is sent, settled or deleted. The condition is in the trigger
-- itself, so that every other delivery costs a comparison and no function call.
CREATE OR REPLACE FUNCTION empty_auth_payload() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may end a delivery need not be allowed to delete content
SET search_path FROM CURRENT -- a delivery may be ended on a connection that is not ours
AS $$
BEGIN
    DELETE FROM delivery_payloads WHERE delivery_id = NEW.id;
    IF NEW.request_fingerprint IS NOT NULL THEN
        UPDATE deliveries SET request_fingerprint = NULL WHERE id = NEW.id;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER empty_auth_payload
    AFTER UPDATE OF state ON deliveries
    FOR EACH ROW
    WHEN (NEW.lane = 'auth' AND NEW.finished_at IS NOT NULL AND NEW.state <> 'dead_letter' AND OLD.state <> NEW.state)
    EXECUTE FUNCTION empty_auth_payload();
