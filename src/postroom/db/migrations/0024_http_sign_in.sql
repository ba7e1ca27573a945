-- HTTP: the identity of an operator at an OpenID Connect provider, second factors, and the sessions of the dashboard.

ALTER TABLE operators
    ADD COLUMN oidc_issuer         text,                                 -- the provider at which the operator signed in first; NULL: none
    ADD COLUMN oidc_subject        text,                                 -- the account at that provider (claim sub): another account with the same address is refused
    ADD COLUMN second_factor_since timestamptz,                          -- when the operator confirmed an authenticator app; NULL: none
    ADD COLUMN totp_secret         bytea,                                -- the sealed secret of the authenticator app (RFC 6238)
    ADD COLUMN totp_key_id         text,                                 -- the key that sealed it
    ADD COLUMN totp_step           bigint      NOT NULL DEFAULT 0,       -- the time step of the last code: a code works once
    ADD COLUMN totp_wrong          integer     NOT NULL DEFAULT 0,       -- codes that were tried since totp_wrong_since without success
    ADD COLUMN totp_wrong_since    timestamptz NOT NULL DEFAULT now(),   -- the begin of the hour in which tries are counted
    ADD COLUMN recovery_hashes     bytea[]     NOT NULL DEFAULT '{}',    -- SHA-256 of the unused recovery codes, which have 80 random bits
    ADD CONSTRAINT operators_second_factor CHECK (
        (second_factor_since IS NULL) = (totp_secret IS NULL) AND (totp_secret IS NULL) = (totp_key_id IS NULL)
    );

-- Sessions of the dashboard, for the list of one's own sessions and to recognise a new place. The signed cookie decides
-- whether a session is valid. Rows are deleted 90 days after their end.
CREATE TABLE dashboard_sessions (
    nonce      text        PRIMARY KEY,                       -- of the cookie
    began_at   timestamptz NOT NULL DEFAULT clock_timestamp(), -- the sign-in
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(), -- the last use, exact to minutes
    expires_at timestamptz NOT NULL,
    owner_id   bigint      NOT NULL,                          -- the id of the API key or operator
    owner_kind text        NOT NULL,                          -- key or operator
    method     text        NOT NULL,                          -- how the session was opened: key, code, link or oidc
    client     text        NOT NULL,                          -- address or IPv6 network of the client
    browser    text        NOT NULL,                          -- browser and system, as the client named them
    CONSTRAINT dashboard_sessions_owner_kind CHECK (owner_kind IN ('key', 'operator'))
);

-- list_sessions, is_known_place
CREATE INDEX dashboard_sessions_owner_idx ON dashboard_sessions (owner_kind, owner_id, began_at);
