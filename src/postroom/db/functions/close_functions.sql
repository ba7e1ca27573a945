-- Revoke EXECUTE from PUBLIC on every function of the room that runs as its owner, and on every trigger function.
--
-- PostgreSQL grants EXECUTE on a new function to PUBLIC. A trigger function cannot be called, but a role that may
-- execute it can attach it to a temporary table of its own, whose columns have types with casts of its own: these casts
-- then run with the owner's rights. A trigger needs no EXECUTE to fire, so no role loses anything. The migrator calls
-- this in the transaction that creates functions; the roles that may call one are granted it by name
-- (docs/how-to/database-roles.md).
CREATE OR REPLACE FUNCTION close_functions() RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    v_function regprocedure;
    v_closed   integer := 0;
BEGIN
    FOR v_function IN
        SELECT oid::regprocedure
        FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace
            AND (prosecdef OR prorettype = 'trigger'::regtype)
            AND has_function_privilege('public', oid, 'EXECUTE')
    LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', v_function);
        v_closed := v_closed + 1;
    END LOOP;
    RETURN v_closed;
END
$$;
