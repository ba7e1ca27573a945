-- What plain SQL leaves to be planned is planned as of when it was written, and a birthday is nobody's occasion.

-- Since when a person waits to be planned for; NULL when they are. Kept by users_guard and user_occasions_guard.
ALTER TABLE users ADD COLUMN unplanned_since timestamptz;
UPDATE users SET unplanned_since = created_at WHERE planned_version = 0 AND created_at > now() - interval '1 day';

-- Who has something that nobody can plan, as the last planning found; see `postroom doctor`.
ALTER TABLE users ADD COLUMN is_unplannable boolean NOT NULL DEFAULT false;

-- measure_schedule
CREATE INDEX users_unplannable_idx ON users (id) WHERE is_unplannable;

-- The birthday is planned from date_of_birth; as an occasion it would be a second one. Those there are stay.
ALTER TABLE user_occasions
    ADD CONSTRAINT user_occasions_not_birthday CHECK (event_type <> 'BIRTHDAY') NOT VALID;
