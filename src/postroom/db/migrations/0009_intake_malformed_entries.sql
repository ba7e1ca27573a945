-- Where a malformed command stood in its stream. A consumer that dies between commit and acknowledgement is handed the
-- same entry again; with its place known, it is recorded once. The bytes belong to the identity because a stream that
-- lost its memory may count from the beginning again.
ALTER TABLE malformed_commands ADD COLUMN entry text;

-- record_malformed_commands: the same entry is recorded once
CREATE UNIQUE INDEX malformed_commands_entry_idx ON malformed_commands (entry, sha256(raw))
    WHERE entry IS NOT NULL;
