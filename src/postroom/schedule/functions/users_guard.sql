-- Keep a person's row true whoever writes it: the zone exists, a change counts as a version and has its time.
--
-- The form comes first, because PostgreSQL takes any "Foo+3" for a zone in the manner of POSIX; a name without digits
-- cannot be read that way, and then asking for the time there fails unless the zone is in the database. Python's check is
-- the exact one; a name that only PostgreSQL knows (other capitals) is left unplanned by the sweep, which says so.
CREATE OR REPLACE FUNCTION users_guard() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.version := OLD.version + 1;
        NEW.updated_at := now();
    END IF;
    IF NEW.timezone !~ '^(UTC|Etc/GMT[+-][0-9]{1,2}|[A-Z][A-Za-z_]*(/[A-Z][A-Za-z_-]*){1,2})$' THEN
        RAISE EXCEPTION 'is not a time zone such as Europe/London' USING ERRCODE = 'PR030', COLUMN = 'timezone';
    END IF;
    BEGIN
        PERFORM now() AT TIME ZONE NEW.timezone;
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
    WHEN ((OLD.first_name, OLD.last_name, OLD.date_of_birth, OLD.timezone, OLD.email, OLD.webhook_url)
        IS DISTINCT FROM (NEW.first_name, NEW.last_name, NEW.date_of_birth, NEW.timezone, NEW.email, NEW.webhook_url))
    EXECUTE FUNCTION users_guard();
