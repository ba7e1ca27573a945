-- From any language that can run SQL: the order and its mail in one transaction.
CREATE TABLE IF NOT EXISTS orders (number integer PRIMARY KEY, customer text NOT NULL);

BEGIN;
INSERT INTO orders (number, customer) VALUES (42, 'ada@example.org');
SELECT postroom.send(
    '{Ada Lovelace <ada@example.org>}',
    p_subject         => 'Order 42',
    p_text            => 'Thank you. We will write again when it ships.',
    p_idempotency_key => 'order-42',
    p_tags            => '{"order": "42"}'
);
COMMIT;
