-- Keep deferred_deliveries equal to the mail that was attempted and has not ended. The conditions are in the triggers: a mail
-- that leaves with its first attempt costs a comparison and no function call.
CREATE OR REPLACE FUNCTION list_deferred() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may change a delivery needs no right on the list
SET search_path FROM CURRENT
AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.first_attempt_at IS NULL OR NEW.finished_at IS NOT NULL THEN
        DELETE FROM deferred_deliveries WHERE id = OLD.id;
    ELSE
        INSERT INTO deferred_deliveries AS f (id, since, lane)
        VALUES (NEW.id, NEW.dated_at, NEW.lane)
        ON CONFLICT (id) DO UPDATE
        SET since = excluded.since, lane = excluded.lane;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER deliveries_deferred
    AFTER UPDATE ON deliveries
    FOR EACH ROW
    WHEN (NEW.channel = 'email' AND (OLD.first_attempt_at IS NOT NULL OR NEW.first_attempt_at IS NOT NULL)
        AND ((OLD.first_attempt_at IS NULL, OLD.finished_at IS NULL, OLD.lane, OLD.dated_at)
            IS DISTINCT FROM (NEW.first_attempt_at IS NULL, NEW.finished_at IS NULL, NEW.lane, NEW.dated_at)))
    EXECUTE FUNCTION list_deferred();

CREATE OR REPLACE TRIGGER deliveries_deferred_deleted
    AFTER DELETE ON deliveries
    FOR EACH ROW
    WHEN (OLD.first_attempt_at IS NOT NULL)
    EXECUTE FUNCTION list_deferred();
