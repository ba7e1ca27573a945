-- A queue after the published design of graphile-worker 0.16, without Node: tasks by name, one table of jobs with a
-- generated availability and one covering index in the order of work, a function that adds jobs, a notification for each
-- insert, a fetch that locks a batch for the local queue, and deletion of finished jobs. No record of them is kept.

-- name: schema
CREATE TABLE tasks (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identifier text NOT NULL UNIQUE
);
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id int NOT NULL,
    job_queue_id int,
    payload json NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    max_attempts smallint NOT NULL DEFAULT 25 CHECK (max_attempts > 0),
    attempts smallint NOT NULL DEFAULT 0,
    last_error text,
    key text UNIQUE,
    run_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    locked_at timestamptz,
    locked_by text,
    is_available boolean GENERATED ALWAYS AS (locked_at IS NULL AND attempts < max_attempts) STORED NOT NULL
);
CREATE INDEX jobs_in_order ON jobs (priority, run_at) INCLUDE (id, task_id, job_queue_id) WHERE is_available;
INSERT INTO tasks (identifier) VALUES ('mail');

CREATE FUNCTION announce_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('jobs:insert', json_build_object('count', (SELECT count(*) FROM added))::text);
    RETURN NULL;
END $$;
CREATE TRIGGER announce AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION announce_jobs();

CREATE FUNCTION add_jobs(p_identifiers text[], p_payloads json[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tasks (identifier)
    SELECT DISTINCT wanted FROM unnest(p_identifiers) AS wanted
    WHERE NOT EXISTS (SELECT FROM tasks WHERE identifier = wanted)
    ON CONFLICT DO NOTHING;
    RETURN QUERY INSERT INTO jobs (task_id, payload)
    SELECT tasks.id, spec.payload
    FROM unnest(p_identifiers, p_payloads) WITH ORDINALITY AS spec (identifier, payload, position)
    JOIN tasks USING (identifier)
    ORDER BY position
    RETURNING jobs.id;
END $$;

-- name: insert_one
SELECT add_jobs(ARRAY['mail'], ARRAY[$1::json]);

-- name: insert_batch
SELECT add_jobs(array_fill('mail'::text, ARRAY[cardinality($1::json[])]), $1);

-- name: claim
WITH next AS (
    SELECT id FROM jobs
    WHERE is_available AND run_at <= now() AND task_id = ANY (ARRAY[1])
    ORDER BY priority, run_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET attempts = attempts + 1, locked_by = ($1::uuid)::text, locked_at = now(), updated_at = now()
FROM next
WHERE jobs.id = next.id
RETURNING jobs.id, jobs.payload;

-- name: complete
DELETE FROM jobs WHERE id = ANY ($2::bigint[]) AND locked_by = ($1::uuid)::text;

-- name: count_unfinished
SELECT count(*) FROM jobs;

-- name: clear
TRUNCATE jobs;

-- name: settle
VACUUM ANALYZE jobs;
