-- When an administrator was told of a malformed command, as for dead letters.
ALTER TABLE malformed_commands ADD COLUMN notified_at timestamptz;

-- count_malformed_commands: asked by every scrape, every listing and the doctor
CREATE INDEX malformed_commands_waiting_idx ON malformed_commands (id)
    WHERE resubmitted_at IS NULL;

-- mark_malformed_notified
CREATE INDEX malformed_commands_untold_idx ON malformed_commands (id)
    WHERE notified_at IS NULL AND resubmitted_at IS NULL;
