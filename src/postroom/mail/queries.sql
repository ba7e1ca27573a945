-- The statements of mail, by name.

-- name: list_current_hashes :many
-- The content hash of the current version of every template.
SELECT t.id AS template, v.content_hash
FROM templates AS t
JOIN template_versions AS v ON v.id = t.version_id
ORDER BY t.id;

-- name: list_unrendered :many
-- The versions and variables of deliveries whose content is not stored.
SELECT d.id, d.template_id, d.template_version_id, d.locale, p.variables::text
FROM deliveries AS d
JOIN delivery_payloads AS p ON p.delivery_id = d.id
WHERE d.id = ANY(:delivery_ids::bigint[]) AND d.template_version_id IS NOT NULL AND p.subject IS NULL;

-- name: list_version_sources :many
-- The files of versions.
SELECT id, template, files::text
FROM template_versions
WHERE id = ANY(:version_ids::bigint[]);

-- name: publish_templates :many
-- Store versions of templates and make them current; returns the templates that changed.
SELECT template, version_id
FROM publish_templates(:template::text[], :content_hash::text[], :files::text[], :published_by)
ORDER BY template;
