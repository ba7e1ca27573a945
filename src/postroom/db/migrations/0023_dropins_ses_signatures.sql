-- The drop-ins: requests of Amazon SES clients that were accepted.

-- Signatures of accepted requests, with the call of the client that each belongs to: a recorded request is not accepted as
-- another call. Rows of the last ten minutes count. Unlogged: a crash of PostgreSQL empties it.
CREATE UNLOGGED TABLE ses_signatures (
    used_at   timestamptz NOT NULL DEFAULT now(), -- when it was accepted first
    signature bytea       NOT NULL PRIMARY KEY, -- of a request that was accepted
    call_hash bytea       NOT NULL -- of amz-sdk-invocation-id, which AWS's libraries send and do not sign; of nothing if missing
);

-- drop_signatures
CREATE INDEX ses_signatures_used_at_idx ON ses_signatures (used_at);
