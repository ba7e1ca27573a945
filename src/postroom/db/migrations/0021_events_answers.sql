-- Functions whose parameters or answers are others than before cannot be replaced, only made anew; see their files.
DROP FUNCTION IF EXISTS append_locked_events(text[], text[], jsonb[], jsonb, jsonb, timestamptz, text[], text[]);
DROP FUNCTION IF EXISTS append_events_each(jsonb);
DROP FUNCTION IF EXISTS read_events(jsonb, text, bigint, boolean);
DROP FUNCTION IF EXISTS lock_due_deliveries(delivery_lane, integer, timestamptz);
