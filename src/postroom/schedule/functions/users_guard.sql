-- Validate the time zone of a person, increment the version on a change, and record since when the person is unplanned,
-- also for direct SQL.
--
-- The pattern is checked first, because PostgreSQL accepts any "Foo+3" as a POSIX zone. A name without digits is not a
-- POSIX zone, so setting TimeZone to it fails unless the zone exists. Reading the setting back gives the canonical
-- spelling.
CREATE OR REPLACE FUNCTION users_guard() RETURNS trigger
LANGUAGE plpgsql
SET timezone TO 'UTC' -- restores the session's zone when the function returns
AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.version := OLD.version + 1;
        NEW.updated_at := now();
        IF OLD.planned_version = OLD.version OR OLD.unplanned_since IS NULL THEN
            NEW.unplanned_since := now();
        END IF;
    ELSIF NEW.planned_version <> NEW.version THEN
        NEW.unplanned_since := now();
    END IF;
    IF NEW.timezone !~ '^(UTC|Etc/GMT[+-][0-9]{1,2}|[A-Z][A-Za-z_]*(/[A-Z][A-Za-z_-]*){1,2})$' THEN
        RAISE EXCEPTION 'is not a time zone such as Europe/London' USING ERRCODE = 'PR030', COLUMN = 'timezone';
    END IF;
    BEGIN
        PERFORM set_config('TimeZone', NEW.timezone, true);
        NEW.timezone := current_setting('TimeZone');
    EXCEPTION WHEN invalid_parameter_value THEN
        RAISE EXCEPTION 'is not a time zone such as Europe/London' USING ERRCODE = 'PR030', COLUMN = 'timezone';
    END;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER users_guard_insert
    BEFORE INSERT ON users
    FOR EACH ROW
    EXECUTE FUNCTION users_guard();

CREATE OR REPLACE TRIGGER users_guard_update
    BEFORE UPDATE ON users
    FOR EACH ROW
    WHEN ((OLD.first_name, OLD.last_name, OLD.date_of_birth, OLD.timezone, OLD.email, OLD.webhook_url, OLD.locale, OLD.template)
        IS DISTINCT FROM
        (NEW.first_name, NEW.last_name, NEW.date_of_birth, NEW.timezone, NEW.email, NEW.webhook_url, NEW.locale, NEW.template))
    EXECUTE FUNCTION users_guard();
