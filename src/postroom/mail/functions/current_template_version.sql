-- The version that mail with this template is accepted with; one row, NULL if there is no such template. The planner
-- inlines the function in FROM, because it is STABLE and has no SET clause.
CREATE OR REPLACE FUNCTION current_template_version(p_template text)
RETURNS TABLE (version_id bigint)
LANGUAGE sql STABLE
ROWS 1
AS $$
    SELECT (SELECT t.version_id FROM templates AS t WHERE t.id = p_template)
$$;
