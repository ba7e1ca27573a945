-- The largest transaction id of visible events and steps; NULL without any.
CREATE OR REPLACE FUNCTION last_event_transaction() RETURNS xid8
LANGUAGE sql STABLE
RETURN greatest(
    (SELECT transaction_id FROM events ORDER BY transaction_id DESC LIMIT 1),
    (SELECT transaction_id FROM delivery_steps ORDER BY transaction_id DESC LIMIT 1)
);
