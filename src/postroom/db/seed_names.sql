-- Views of a room under the names of the documents that Postroom combines, for statements that were written for one of
-- them: after SET search_path TO @names, they run as they are. A view passes locks, INSERT, UPDATE and DELETE on to its
-- table, with the rights of its caller. The event store of the room is not here: two documents call a table `events`.
BEGIN;
CREATE SCHEMA IF NOT EXISTS @names;

-- Account mail.
CREATE OR REPLACE VIEW @names.accounts WITH (security_invoker = true) AS SELECT * FROM @room.accounts;
CREATE OR REPLACE VIEW @names.tokens WITH (security_invoker = true) AS SELECT * FROM @room.tokens;
CREATE OR REPLACE VIEW @names.jobs WITH (security_invoker = true) AS SELECT * FROM @room.jobs;

-- Greetings at local time.
CREATE OR REPLACE VIEW @names.users WITH (security_invoker = true) AS SELECT * FROM @room.users;
CREATE OR REPLACE VIEW @names.events WITH (security_invoker = true) AS SELECT * FROM @room.scheduled_events;

-- Campaigns over sender accounts.
CREATE OR REPLACE VIEW @names.sender_accounts WITH (security_invoker = true) AS SELECT * FROM @room.sender_accounts;
CREATE OR REPLACE VIEW @names.email_queue WITH (security_invoker = true) AS SELECT * FROM @room.email_queue;
CREATE OR REPLACE VIEW @names.send_logs WITH (security_invoker = true) AS SELECT * FROM @room.send_logs;
CREATE OR REPLACE VIEW @names.bounce_list WITH (security_invoker = true) AS SELECT * FROM @room.bounce_list;
CREATE OR REPLACE VIEW @names.unsubscribe_list WITH (security_invoker = true) AS SELECT * FROM @room.unsubscribe_list;
CREATE OR REPLACE VIEW @names.open_events WITH (security_invoker = true) AS SELECT * FROM @room.open_events;
CREATE OR REPLACE VIEW @names.click_events WITH (security_invoker = true) AS SELECT * FROM @room.click_events;

-- Deliveries: the key is delivery_id, the state is called status.
CREATE OR REPLACE VIEW @names.deliveries WITH (security_invoker = true) AS
SELECT id AS delivery_id, state AS status, source, idempotency_key, request_fingerprint, idempotency_expires_at, attempt_count,
    next_attempt_at, template_id, locale, resend_of AS resend_parent_delivery_id, created_at, finished_at, reason, detail
FROM @room.deliveries;
CREATE OR REPLACE VIEW @names.delivery_recipients WITH (security_invoker = true) AS SELECT * FROM @room.delivery_recipients;
CREATE OR REPLACE VIEW @names.attempts WITH (security_invoker = true) AS SELECT * FROM @room.attempts;
CREATE OR REPLACE VIEW @names.dead_letters WITH (security_invoker = true) AS SELECT * FROM @room.dead_letters;
CREATE OR REPLACE VIEW @names.delivery_payloads WITH (security_invoker = true) AS SELECT * FROM @room.delivery_payloads;
CREATE OR REPLACE VIEW @names.malformed_commands WITH (security_invoker = true) AS SELECT * FROM @room.malformed_commands;

COMMIT;
