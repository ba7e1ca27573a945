-- Where a piece of the archive lies. A file is looked for, rewritten and forgotten in the store it was written to, whatever
-- the settings say by then. NULL: written before this was recorded, in the store that the settings name.

ALTER TABLE archived_partitions ADD COLUMN store_url text; -- file:///folder or s3://bucket/prefix; never with credentials
