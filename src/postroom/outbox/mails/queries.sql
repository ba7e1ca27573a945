-- The rules that turn events into mails.

-- name: delete_rule :maybe
-- Delete a rule.
DELETE FROM outbox_mail_rules WHERE id = :id RETURNING topic;

-- name: insert_rule :maybe
-- Store a rule; no row if an equal one exists.
INSERT INTO outbox_mail_rules (topic, event_type, template, recipient_path, locale_path, lane)
VALUES (:topic, :event_type, :template, :recipient_path, :locale_path, :lane)
ON CONFLICT (topic, event_type, template, recipient_path) DO NOTHING
RETURNING id, created_at, topic, event_type, template, recipient_path, locale_path, lane;

-- name: list_rules :many
-- All rules, or the rules of one topic.
SELECT id, created_at, topic, event_type, template, recipient_path, locale_path, lane
FROM outbox_mail_rules
WHERE :topic::text IS NULL OR topic = :topic
ORDER BY id;
