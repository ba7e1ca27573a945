-- Dashboard: sessions that were ended.

-- Sessions of the dashboard that were signed out before they expired. A session itself is a signed cookie.
CREATE TABLE ended_sessions (
    nonce      text        PRIMARY KEY,
    expires_at timestamptz NOT NULL
);
