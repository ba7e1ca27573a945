-- The rules by which events become mails.

-- name: delete_rule :maybe
-- Forget a rule.
DELETE FROM outbox_mail_rules WHERE id = :id RETURNING topic;

-- name: insert_rule :maybe
-- Keep a rule; nothing if there is one like it.
INSERT INTO outbox_mail_rules (topic, event_type, template, recipient_path, locale_path, lane)
VALUES (:topic, :event_type, :template, :recipient_path, :locale_path, :lane)
ON CONFLICT (topic, event_type, template, recipient_path) DO NOTHING
RETURNING id, created_at, topic, event_type, template, recipient_path, locale_path, lane;

-- name: list_rules :many
-- All rules, or those of one topic.
SELECT id, created_at, topic, event_type, template, recipient_path, locale_path, lane
FROM outbox_mail_rules
WHERE :topic::text IS NULL OR topic = :topic
ORDER BY id;
