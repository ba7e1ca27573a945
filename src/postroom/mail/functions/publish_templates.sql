-- Store versions of templates and make them current. A version that the room has is not stored again, so processes that
-- start with the same files can publish them at the same time. Returns the templates whose current version changed.
CREATE OR REPLACE FUNCTION publish_templates(
    p_template     text[],
    p_content_hash text[],
    p_files        text[], -- JSON as text
    p_published_by text
) RETURNS TABLE (template text, version_id bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    -- In one order for all processes: two that publish the same templates wait for each other without a deadlock.
    INSERT INTO template_versions (template, content_hash, files, published_by)
    SELECT given.template, given.content_hash, given.files, p_published_by
    FROM unnest(p_template, p_content_hash, p_files::jsonb[]) AS given(template, content_hash, files)
    ORDER BY given.template COLLATE "C"
    ON CONFLICT (template, content_hash) DO NOTHING;

    -- A statement of its own: it sees the versions that another process has committed meanwhile.
    RETURN QUERY
    WITH chosen AS MATERIALIZED (
        SELECT v.id, v.template
        FROM unnest(p_template, p_content_hash) AS given(template, content_hash)
        JOIN template_versions AS v USING (template, content_hash)
    )
    INSERT INTO templates AS t (id, version_id)
    SELECT chosen.template, chosen.id
    FROM chosen
    ORDER BY chosen.template COLLATE "C"
    ON CONFLICT (id) DO UPDATE
    SET version_id = EXCLUDED.version_id, changed_at = now()
    WHERE t.version_id <> EXCLUDED.version_id
    RETURNING t.id, t.version_id;

    UPDATE template_versions AS v
    SET replaced_at = CASE WHEN t.version_id <> v.id THEN now() END
    FROM templates AS t
    WHERE t.id = v.template AND v.template = ANY(p_template) AND (t.version_id <> v.id) <> (v.replaced_at IS NOT NULL);
END
$$;
