-- The statements of mail, by name.

-- name: list_current_hashes :many
-- The content hash of the current version of every template.
SELECT t.id AS template, v.content_hash
FROM templates AS t
JOIN template_versions AS v ON v.id = t.version_id
ORDER BY t.id;

-- name: publish_templates :many
-- Store versions of templates and make them current; returns the templates that changed.
SELECT template, version_id
FROM publish_templates(:template::text[], :content_hash::text[], :files::text[], :published_by)
ORDER BY template;
