-- Mark the person of a new or changed occasion as unplanned; the sweep plans within seconds unless the same transaction
-- does. The version stays, because the person did not change. A person who was never planned for stays new
-- (planned_version 0) and keeps the events they were inserted with.
CREATE OR REPLACE FUNCTION user_occasions_guard() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT -- an application's connection has another search path
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
