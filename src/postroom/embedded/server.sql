-- Prepare a server for Postroom. Run by the superuser over the private socket, at every start.

-- name: take_turn :one
-- Wait for a start that was killed: the server still runs the statement of its dead client.
SELECT pg_advisory_lock(1347375954);

-- name: provide_role :exec
-- The application's role. The secret arrives as a SCRAM verifier in a setting of the connection: neither the password
-- nor the verifier appears in a statement that the server could log.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'postroom') THEN
        CREATE ROLE postroom;
    END IF;
    EXECUTE format(
        'ALTER ROLE postroom LOGIN NOSUPERUSER CREATEDB PASSWORD %L',
        current_setting('postroom.verifier')
    );
END
$$;

-- name: has_database :one
-- True if the application's database exists.
SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'postroom') AS has_database;

-- name: create_database :exec
-- The application's database, owned by its role.
CREATE DATABASE postroom OWNER postroom;
