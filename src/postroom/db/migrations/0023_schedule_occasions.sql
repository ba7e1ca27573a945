-- Occasions are looked after like birthdays, and nothing is planned outside the calendar.

-- True when nothing of it is still to come: a reminder that was sent, something that recurred until a day that is past.
ALTER TABLE user_occasions ADD COLUMN is_over boolean NOT NULL DEFAULT false;

-- A day before the year 1 is one that no client of ours can read; '-infinity' is read as that year's first.
ALTER TABLE users
    ADD CONSTRAINT users_date_of_birth_readable CHECK (date_of_birth >= '0001-01-01' OR date_of_birth = '-infinity')
    NOT VALID;
ALTER TABLE users VALIDATE CONSTRAINT users_date_of_birth_readable; -- with one such row no sweep could have ended

-- A day's room on both sides for zones. Events of before are not looked through: there may be very many, and those that
-- break this were never handed over.
ALTER TABLE scheduled_events
    ADD CONSTRAINT scheduled_events_target_readable CHECK (
        target_timestamp_utc >= '0001-01-02 00:00+00' AND target_timestamp_utc < '9999-12-31 00:00+00'
        AND target_timestamp_local >= '0001-01-02' AND target_timestamp_local < '9999-12-31'
    ) NOT VALID;

-- Every event leaves dead entries at the end of the index where each look begins. A share of a very large table would be
-- millions of them; a number keeps a look as cheap as it is in a small one.
ALTER TABLE scheduled_events SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000);
