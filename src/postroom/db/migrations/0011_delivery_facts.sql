-- Which facts about deliveries are appended to the event store; see functions/record_delivery_facts.sql.

-- The facts about deliveries that are appended to the event store.
CREATE TABLE recorded_facts (
    type text PRIMARY KEY,
    CONSTRAINT recorded_facts_known CHECK (type IN (
        'DeliveryAccepted', 'DeliverySent', 'DeliveryDeferred', 'DeliveryFailed', 'DeliveryDeadLettered',
        'DeliverySuppressed', 'DeliveryCancelled', 'DeliveryRedriven'))
);

INSERT INTO recorded_facts
VALUES ('DeliveryAccepted'), ('DeliverySent'), ('DeliveryDeferred'), ('DeliveryFailed'), ('DeliveryDeadLettered'),
    ('DeliverySuppressed'), ('DeliveryCancelled'), ('DeliveryRedriven');
