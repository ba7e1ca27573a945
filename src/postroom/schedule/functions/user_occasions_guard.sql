-- Whoever adds or changes an occasion, by whatever way, leaves its person unplanned for, and the sweep plans within seconds
-- unless the transaction itself does. The version stays, because the person did not change; a person whom nobody has
-- planned for yet stays new, and so keeps what they came with.
CREATE OR REPLACE FUNCTION user_occasions_guard() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT -- an occasion may be written on a connection that is not ours
AS $$
BEGIN
    NEW.is_over := false;
    UPDATE users SET planned_version = -1, unplanned_since = now() WHERE id = NEW.user_id AND planned_version = version;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER user_occasions_guard
    BEFORE INSERT OR UPDATE OF user_id, event_type, message, rule ON user_occasions
    FOR EACH ROW
    EXECUTE FUNCTION user_occasions_guard();
