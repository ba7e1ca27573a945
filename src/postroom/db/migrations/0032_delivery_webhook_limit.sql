-- lock_due_deliveries is told how many webhooks it may take.

DROP FUNCTION IF EXISTS lock_due_deliveries(delivery_lane, integer, timestamptz, boolean);
