-- Outages: which mail was tried and still waits, and which ways out do not answer.

-- Mail that was attempted and has not ended: the trigger deliveries_deferred keeps it equal to the deliveries with a
-- first_attempt_at. Apart from due_deliveries, where a million mails that are scheduled for later would be read past.
CREATE TABLE deferred_deliveries (
    id    bigint        PRIMARY KEY,
    since timestamptz   NOT NULL, -- dated_at of the delivery: when it was to leave
    lane  delivery_lane NOT NULL
);

-- measure_oldest, release_unreached: the deferred mail of a lane, oldest first
CREATE INDEX deferred_deliveries_order_idx ON deferred_deliveries (lane, since, id);

INSERT INTO deferred_deliveries (id, since, lane)
SELECT d.id, d.dated_at, d.lane
FROM due_deliveries AS w
JOIN deliveries AS d ON d.id = w.id
WHERE d.first_attempt_at IS NOT NULL AND d.channel = 'email';

-- The relay and each sender account, once mail was tried there: whether it answers. Workers write it every few seconds.
CREATE TABLE ways_out (
    name              text        PRIMARY KEY, -- host and port of the relay, or the address of the account
    sender_account_id bigint,                  -- NULL: the relay
    last_sent_at      timestamptz,             -- the last mail that it accepted; NULL: none yet
    failing_since     timestamptz,             -- every attempt since then ended before a mail was offered; NULL: it answers
    failures          bigint      NOT NULL DEFAULT 0, -- attempts since then
    logins_refused    bigint      NOT NULL DEFAULT 0, -- those of them whose login was refused
    stage             text,                    -- connect, tls or login: where the last one ended
    detail            text,                    -- the reply of the server, or the error of the network
    probed_at         timestamptz,             -- the last probe of a relay that does not answer
    is_reported       boolean     NOT NULL DEFAULT false -- a probe has failed too: the outage is in the log
) WITH (fillfactor = 50); -- each is updated every few seconds

INSERT INTO admin_notices (kind) VALUES ('relay');
