-- Dashboard: sessions that were ended, and codes to sign in.

-- Sessions of the dashboard that were signed out before they expired, and sign-in links that were used. Both are signed
-- values without a row of their own.
CREATE TABLE ended_sessions (
    nonce      text        PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

-- Codes that were mailed to operators who want to sign in. A request for an unknown address has a row too, so that limits
-- and answers are the same. Rows are deleted after a day.
CREATE TABLE sign_in_codes (
    nonce_hash   bytea       PRIMARY KEY,          -- hash of the nonce in the cookie of the browser that requested the code
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    used_at      timestamptz,                      -- when an operator signed in with the code
    attempts     integer     NOT NULL DEFAULT 0,   -- how often a code was entered
    operator_id  bigint,                           -- the operator with the address; NULL: no operator has it
    address_hash bytea       NOT NULL,             -- keyed hash of the address, to count requests
    client       text        NOT NULL,             -- address or IPv6 network of the client, to count requests
    code_hash    bytea       NOT NULL              -- keyed hash of the nonce and the code
);

-- Requests of the last hour by address and by client (count_sign_in_codes).
CREATE INDEX sign_in_codes_address_idx ON sign_in_codes (address_hash, created_at);
CREATE INDEX sign_in_codes_client_idx ON sign_in_codes (client, created_at);
