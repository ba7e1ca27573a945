-- Facts about what people did.

-- name: list_audit :many
-- The audit trail, newest first, of one subject or of all.
SELECT id, at, actor, action, subject, before::text, after::text
FROM audit_log
WHERE (:subject::text IS NULL OR subject = :subject)
ORDER BY id DESC
LIMIT :page_limit;

-- name: record_audit :exec
-- Say who did what, in the transaction that does it.
INSERT INTO audit_log (actor, action, subject, before, after)
VALUES (:actor, :action, :subject, :before::text::jsonb, :after::text::jsonb);
