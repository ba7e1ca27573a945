-- Erasing reaches further: keys that machines made, the audit log, and files that must wait are named.

-- What an erasure could not clean yet, and why: paths of files, never whom they hold.
ALTER TABLE erasures ADD COLUMN waits_for text[] NOT NULL DEFAULT '{}';
ALTER TABLE erasures ADD CONSTRAINT erasures_waits_while_running CHECK (state <> 'done' OR waits_for = '{}');

-- While a piece is written anew it has two files: the one that `path` names counts, the other is removed by whoever erases.
ALTER TABLE archived_partitions ADD COLUMN spare_path text;
