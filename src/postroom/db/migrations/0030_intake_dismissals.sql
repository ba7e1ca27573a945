-- When an operator decided that a malformed command needs nothing more: it is kept, and waits for nobody.
ALTER TABLE malformed_commands ADD COLUMN dismissed_at timestamptz;

DROP INDEX malformed_commands_waiting_idx;
DROP INDEX malformed_commands_untold_idx;

-- count_malformed_commands: asked by every scrape, every listing and the doctor
CREATE INDEX malformed_commands_waiting_idx ON malformed_commands (id)
    WHERE resubmitted_at IS NULL AND dismissed_at IS NULL;

-- mark_malformed_notified
CREATE INDEX malformed_commands_untold_idx ON malformed_commands (id)
    WHERE notified_at IS NULL AND resubmitted_at IS NULL AND dismissed_at IS NULL;
