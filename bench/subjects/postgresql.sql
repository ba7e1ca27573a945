-- The least any queue of mail has to ask of PostgreSQL. Nothing here is recorded beyond what each row measures.

-- name: schema
CREATE TABLE mail (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    idempotency_key text NOT NULL UNIQUE,
    recipient text NOT NULL,
    payload text NOT NULL,
    state text NOT NULL DEFAULT 'queued',
    claim uuid
);
CREATE INDEX mail_waiting ON mail (id) WHERE state = 'queued';
CREATE TABLE mail_log (
    mail_id bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    outcome text NOT NULL
);
CREATE TABLE one_row (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    idempotency_key text NOT NULL UNIQUE,
    payload text NOT NULL
);

-- name: insert_row
INSERT INTO one_row (idempotency_key, payload) VALUES ($1, $2) RETURNING id;

-- name: insert_one
INSERT INTO mail (idempotency_key, recipient, payload)
VALUES ($1, $2, $3)
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING id;

-- name: insert_batch
INSERT INTO mail (idempotency_key, recipient, payload)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING id;

-- name: claim
UPDATE mail
SET state = 'claimed', claim = $1
WHERE id IN (SELECT id FROM mail WHERE state = 'queued' ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING id, recipient, payload;

-- name: complete
WITH done AS (
    UPDATE mail SET state = 'done' WHERE id = ANY ($2::bigint[]) AND claim = $1 RETURNING id
)
INSERT INTO mail_log (mail_id, outcome) SELECT id, 'sent' FROM done;

-- name: complete_without_log
UPDATE mail SET state = 'done' WHERE id = ANY ($2::bigint[]) AND claim = $1;

-- name: count_unfinished
SELECT count(*) FROM mail WHERE state <> 'done';

-- name: clear
TRUNCATE mail, mail_log, one_row;

-- name: settle
VACUUM ANALYZE mail;
