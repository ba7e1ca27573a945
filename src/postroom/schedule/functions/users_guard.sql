-- Keep a person's row true whoever writes it: the zone exists, a change counts as a version and has its time, and it is
-- known since when nobody has planned for it.
--
-- The form comes first, because PostgreSQL takes any "Foo+3" for a zone in the manner of POSIX; a name without digits
-- cannot be read that way, and then choosing the zone fails unless it is in the database. Chosen and asked for again, the
-- name is spelled as the database spells it, whatever capitals it came in.
CREATE OR REPLACE FUNCTION users_guard() RETURNS trigger
LANGUAGE plpgsql
SET timezone TO 'UTC' -- what is chosen below lasts no longer than the call
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
