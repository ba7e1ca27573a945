-- The statements of mail, by name.

-- name: count_templates :one
-- The number of templates.
SELECT count(*) AS templates
FROM templates;

-- name: delete_old_versions :one
-- One bounded step of retention through the versions, in the order of their ids: delete those that were replaced long ago
-- and that no delivery keeps. No index has the version of a delivery: every mail would pay for it. Only deliveries from
-- before the replacement can keep a version, a day being allowed for transactions that had begun, and resends. They have
-- nearly all been deleted by then: a version of whose template 100 are left stays for a later run, and every version stays
-- while 10,000 resends exist.
WITH page AS MATERIALIZED (
    SELECT v.id, v.template, first_delivery_since(v.replaced_at + interval '1 day') AS before_id
    FROM template_versions AS v
    WHERE v.id > coalesce(:after::bigint, 0) AND v.replaced_at < coalesce(:now::timestamptz, now()) - :retention::interval
    ORDER BY v.id
    LIMIT :batch_limit
),
resent AS MATERIALIZED (
    SELECT d.template_version_id AS version_id
    FROM deliveries AS d
    WHERE d.resend_of IS NOT NULL
    ORDER BY d.resend_of
    LIMIT 10000
),
deleted AS (
    DELETE FROM template_versions AS v
    USING page
    WHERE v.id = page.id AND v.replaced_at IS NOT NULL AND NOT EXISTS (SELECT FROM templates AS t WHERE t.version_id = v.id)
        AND (SELECT count(*) FROM resent) < 10000
        AND NOT EXISTS (SELECT FROM resent WHERE resent.version_id = v.id)
        AND (
            SELECT count(*) < 100 AND count(*) FILTER (WHERE kept.version_id = v.id) = 0
            FROM (
                SELECT d.template_version_id AS version_id
                FROM deliveries AS d
                WHERE d.template_id = page.template AND d.id >> 10 <= page.before_id >> 10 AND d.id < page.before_id
                ORDER BY d.id >> 10
                LIMIT 100
            ) AS kept
        )
    RETURNING v.id
)
SELECT count(*) AS seen, (SELECT count(*) FROM deleted) AS deleted, max(id) AS last_id
FROM page;

-- name: find_version :maybe
-- One version of a template with its files; the current one if no id is given.
SELECT v.id, v.template, v.content_hash, v.published_at, v.published_by, v.replaced_at, v.files::text
FROM template_versions AS v
WHERE v.template = :template
    AND v.id = coalesce(:version_id::bigint, (SELECT t.version_id FROM templates AS t WHERE t.id = :template));

-- name: find_version_before :maybe
-- The version of a template that was published before another one.
SELECT max(v.id) AS id
FROM template_versions AS v
WHERE v.template = :template AND v.id < :version_id
HAVING max(v.id) IS NOT NULL;

-- name: list_current_hashes :many
-- The content hash of the current version of every template.
SELECT t.id AS template, v.content_hash
FROM templates AS t
JOIN template_versions AS v ON v.id = t.version_id
ORDER BY t.id;

-- name: list_current_versions :many
-- The current version of every template.
SELECT id AS template, version_id
FROM templates
ORDER BY id;

-- name: list_templates :many
-- Every template with its current version and the locales of that.
SELECT t.id, t.version_id, t.changed_at, v.content_hash, ARRAY(
        SELECT DISTINCT replace(split_part(path, '/', 1), '_', '-')
        FROM jsonb_object_keys(v.files) AS path
        WHERE left(path, 1) <> '_'
        ORDER BY 1
    ) AS locales
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

-- name: list_versions :many
-- The versions of a template, newest first, below a cursor.
SELECT v.id, v.template, v.content_hash, v.published_at, v.published_by, v.replaced_at
FROM template_versions AS v
WHERE v.template = :template AND (:before_id::bigint IS NULL OR v.id < :before_id)
ORDER BY v.id DESC
LIMIT :page_limit;

-- name: publish_templates :many
-- Store versions of templates and make them current; returns the templates that changed.
SELECT template, version_id
FROM publish_templates(:template::text[], :content_hash::text[], :files::text[], :published_by)
ORDER BY template;
