-- A queue after the published design of pgmq 1.5, without its extension: a table for each queue with the time at which a
-- message becomes visible, a read that moves that time, and an archive into which finished messages are moved.

-- name: schema
CREATE TABLE q_mail (
    msg_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    read_ct int NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    vt timestamptz NOT NULL,
    message jsonb,
    headers jsonb
);
CREATE INDEX q_mail_visible ON q_mail (vt);
CREATE TABLE a_mail (
    msg_id bigint PRIMARY KEY,
    read_ct int NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    archived_at timestamptz NOT NULL DEFAULT now(),
    vt timestamptz NOT NULL,
    message jsonb,
    headers jsonb
);
CREATE INDEX a_mail_archived ON a_mail (archived_at);

-- name: insert_one
INSERT INTO q_mail (vt, message) VALUES (clock_timestamp(), $1::jsonb) RETURNING msg_id;

-- name: insert_batch
INSERT INTO q_mail (vt, message) SELECT clock_timestamp(), unnest($1::jsonb[]) RETURNING msg_id;

-- name: claim
WITH next AS (
    SELECT msg_id FROM q_mail
    WHERE vt <= clock_timestamp() AND $1::uuid IS NOT NULL -- pgmq does not fence: a read is not bound to its reader
    ORDER BY msg_id LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE q_mail
SET vt = clock_timestamp() + interval '30 seconds', read_ct = read_ct + 1
FROM next
WHERE q_mail.msg_id = next.msg_id
RETURNING q_mail.msg_id AS id, q_mail.message AS payload;

-- name: complete
WITH archived AS (
    DELETE FROM q_mail WHERE msg_id = ANY ($2::bigint[]) AND $1::uuid IS NOT NULL
    RETURNING msg_id, vt, read_ct, enqueued_at, message, headers
)
INSERT INTO a_mail (msg_id, vt, read_ct, enqueued_at, message, headers)
SELECT msg_id, vt, read_ct, enqueued_at, message, headers FROM archived;

-- name: count_unfinished
SELECT count(*) FROM q_mail;

-- name: clear
TRUNCATE q_mail, a_mail;

-- name: settle
VACUUM ANALYZE q_mail;
