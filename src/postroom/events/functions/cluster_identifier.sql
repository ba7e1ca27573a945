-- PostgreSQL's system identifier of this cluster; NULL if the role may not read it. Every role may by default. The
-- privilege is checked first, because a statement without it fails as a whole.
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
