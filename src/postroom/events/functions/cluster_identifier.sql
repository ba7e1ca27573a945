-- What PostgreSQL calls the cluster we are in, since it was made; NULL if this role may not know. Everybody may unless it
-- was forbidden. The rights are looked up first because a statement that lacks them fails as a whole.
CREATE OR REPLACE FUNCTION cluster_identifier() RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF has_function_privilege('pg_catalog.pg_control_system()'::regprocedure, 'EXECUTE') THEN
        RETURN (SELECT system_identifier FROM pg_control_system());
    END IF;
    RETURN NULL;
END
$$;
