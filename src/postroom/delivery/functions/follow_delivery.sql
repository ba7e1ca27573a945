-- Keep due_deliveries equal to the waiting deliveries after a change of a record, by any client. Claims are excluded:
-- they delete their rows themselves. The conditions are in the triggers, so that a completed delivery costs a
-- comparison and no function call.
CREATE OR REPLACE FUNCTION follow_delivery() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may change a delivery needs no right on the table of waiting ones
SET search_path FROM CURRENT
AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        TRUNCATE due_deliveries;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.id <> OLD.id THEN
        DELETE FROM due_deliveries WHERE id = OLD.id;
    END IF;
    IF TG_OP = 'DELETE' OR NEW.next_attempt_at IS NULL THEN
        DELETE FROM due_deliveries WHERE id = OLD.id;
    ELSE
        INSERT INTO due_deliveries AS w (id, due_at, lane, channel, campaign_id, watch_at)
        VALUES (NEW.id, NEW.next_attempt_at, NEW.lane, NEW.channel, NEW.campaign_id,
            CASE WHEN NEW.state = 'queued' AND NEW.template_id IS NOT NULL THEN '-infinity' ELSE NEW.expires_at END)
        ON CONFLICT (id) DO UPDATE
        SET due_at = excluded.due_at, lane = excluded.lane, channel = excluded.channel, campaign_id = excluded.campaign_id,
            watch_at = excluded.watch_at;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER deliveries_due
    AFTER UPDATE ON deliveries
    FOR EACH ROW
    WHEN (NEW.state <> 'sending' AND (OLD.next_attempt_at IS DISTINCT FROM NEW.next_attempt_at
        OR NEW.next_attempt_at IS NOT NULL
        AND (OLD.id, OLD.state, OLD.lane, OLD.channel, OLD.campaign_id, OLD.expires_at)
            IS DISTINCT FROM (NEW.id, NEW.state, NEW.lane, NEW.channel, NEW.campaign_id, NEW.expires_at)))
    EXECUTE FUNCTION follow_delivery();

CREATE OR REPLACE TRIGGER deliveries_due_deleted
    AFTER DELETE ON deliveries
    FOR EACH ROW
    WHEN (OLD.next_attempt_at IS NOT NULL)
    EXECUTE FUNCTION follow_delivery();

CREATE OR REPLACE TRIGGER deliveries_due_truncated
    AFTER TRUNCATE ON deliveries
    FOR EACH STATEMENT
    EXECUTE FUNCTION follow_delivery();
