-- Accounts: tokens that another program dequeued by moving jobs.last_seq are not mailed again.

-- A dequeue by another program: tokens of these ids that it could see.
CREATE TYPE outside_dequeue AS (
    after_seq   bigint,
    through_seq bigint,
    seen        pg_snapshot
);

-- `last_seq` becomes the largest id that was handed over, by Postroom's collector or by another program that reads
-- `id > last_seq`. The cursor of the collector, which orders by transaction, gets an id of its own.
ALTER TABLE jobs
    ADD COLUMN last_id bigint, -- the second part of the collector's cursor; NULL: last_seq is
    ADD COLUMN cursor_id bigint GENERATED ALWAYS AS (coalesce(last_id, last_seq)) STORED, -- the same, never NULL
    ADD COLUMN outside outside_dequeue[] NOT NULL DEFAULT '{}'; -- dequeues by other programs that the cursor has not passed
