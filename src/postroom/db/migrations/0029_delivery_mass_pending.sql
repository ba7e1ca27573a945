-- The mail that a mass cancel still has to see: workers hold it, or another transaction had locked it. The action is unfinished
-- until each of them has ended or was cancelled. `from_id`: where its first step began; NULL in actions of release 0.1.0.
ALTER TABLE mass_actions
    ADD COLUMN pending bigint[] NOT NULL DEFAULT '{}', -- the deliveries that the next step looks at again
    ADD COLUMN from_id bigint; -- deliveries from this id on were accepted later
