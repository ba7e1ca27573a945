-- Roles for a room called `postroom`, in the application's own database. Run once, by an administrator of the database,
-- before the first `postroom migrate`. No superuser is needed: CREATEROLE, and ownership of the database, are enough.
-- Give each LOGIN role a password or a certificate in the way your installation does.

CREATE ROLE postroom_owner LOGIN;  -- postroom migrate
CREATE ROLE postroom_worker LOGIN; -- postroom work
CREATE ROLE postroom_api LOGIN;    -- postroom serve, and the commands of operators
CREATE ROLE postroom_reader LOGIN; -- read-only users and dashboards
CREATE ROLE postroom_sender;       -- granted to the application: may only call send(…)

-- A schema can only be given to a role that we may act as.
GRANT postroom_owner TO CURRENT_USER;
CREATE SCHEMA postroom AUTHORIZATION postroom_owner;
GRANT USAGE ON SCHEMA postroom TO postroom_worker, postroom_api, postroom_reader, postroom_sender;

-- A pooler does not keep a session's settings, so the search path belongs to the role.
ALTER ROLE postroom_owner SET search_path = postroom;
ALTER ROLE postroom_worker SET search_path = postroom;
ALTER ROLE postroom_api SET search_path = postroom;
ALTER ROLE postroom_reader SET search_path = postroom;

-- A role can have its own triggers and casts on temporary tables, which PostgreSQL allows every role by default. Grant
-- the right to the roles that need it: GRANT TEMP ON DATABASE app TO app.
DO $$ BEGIN EXECUTE format('REVOKE TEMP ON DATABASE %I FROM PUBLIC', current_database()); END $$;

-- The worker and the API may use the tables that a later migration creates, next month's partitions too.
ALTER DEFAULT PRIVILEGES FOR ROLE postroom_owner IN SCHEMA postroom
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO postroom_worker, postroom_api;
ALTER DEFAULT PRIVILEGES FOR ROLE postroom_owner IN SCHEMA postroom
    GRANT USAGE, SELECT ON SEQUENCES TO postroom_worker, postroom_api;
