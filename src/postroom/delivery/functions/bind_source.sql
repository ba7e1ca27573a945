-- The source under which a role may send: an application's mail has the name of its role.
--
-- A role that may write `deliveries` (the owner, the worker, the API) is Postroom's own and chooses freely. Any other
-- role is an application: its source is its name, or its name, a colon and a suffix ('shop:orders'). Default sources
-- ('sql', 'python', 'django', 'email_queue') are replaced by the role's name. The session's role is used, not the
-- current one: the caller runs as the owner of the room here. Reserved names: delivery/check.py.
CREATE OR REPLACE FUNCTION bind_source(p_source text) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_role    text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    v_source  text;
    v_problem text;
BEGIN
    IF NOT has_table_privilege(v_role, 'deliveries', 'INSERT') THEN
        v_source := CASE
            WHEN coalesce(p_source IN ('sql', 'python', 'django', 'email_queue'), true) THEN v_role
            ELSE p_source END;
        IF v_source <> v_role AND NOT starts_with(v_source, v_role || ':') THEN
            v_problem := format('the role %s sends as %1$s, or as %1$s: followed by a word of its own', quote_ident(v_role));
        END IF;
    ELSE
        v_source := coalesce(p_source, 'sql');
    END IF;
    IF v_problem IS NULL AND length(v_source) BETWEEN 1 AND 100 AND v_source !~ '[\x01-\x1f\x7f]'
        AND v_source NOT IN ('accounts', 'admin', 'campaigns', 'operators', 'outbox', 'schedule')
    THEN
        RETURN v_source;
    END IF;
    RAISE EXCEPTION 'source: %', CASE
        WHEN length(v_source) NOT BETWEEN 1 AND 100 OR v_source ~ '[\x01-\x1f\x7f]'
            THEN 'must be 1 to 100 characters without control characters'
        ELSE coalesce(v_problem, format('%s is reserved for Postroom; choose another, such as %1$s:app', v_source))
    END USING ERRCODE = 'PR001', COLUMN = 'source';
END
$$;
