-- Database: failures of background loops, for the doctor. The table `migrations` is made before the first migration.

-- Background loops of worker processes that raised an error and were restarted; `postroom doctor` shows them.
CREATE TABLE loop_failures (
    failures  bigint      NOT NULL DEFAULT 1,
    failed_at timestamptz NOT NULL DEFAULT now(),
    pid       integer     NOT NULL,
    loop      text        NOT NULL,
    host      text        NOT NULL,
    error     text        NOT NULL,
    PRIMARY KEY (loop, host)
);
