-- Limits: of the room, and the counts of mails against the limits of the room and of API keys.

-- The limits of the room; without limits, the table is empty. The limits of a key are columns of `api_keys`.
CREATE TABLE room_limits (
    id              boolean     PRIMARY KEY DEFAULT true CHECK (id), -- always true: at most one row
    updated_at      timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz,                       -- from this time on the room accepts no mail; NULL: never
    rate_per_minute integer     CHECK (rate_per_minute > 0), -- the most mails in a minute; NULL: any number
    daily_quota     integer     CHECK (daily_quota > 0), -- the most mails in a UTC day; NULL: any number
    from_domains    text[]      NOT NULL DEFAULT '{}', -- domains that From may have; empty: any

    CONSTRAINT room_limits_expiry_readable CHECK (expires_at >= '0001-01-02 00:00+00' AND expires_at < '9999-12-31 00:00+00')
);

-- Mails counted against limits. Processes take a second's worth at a time (take_allowance), so a row changes a few times
-- a second at most, however many mails are accepted. Room for updates within the page.
CREATE TABLE allowances (
    holder      text        PRIMARY KEY,      -- key:<id>: accepted with the key; room: accepted in the room; sent: sent from the room
    minute      timestamptz NOT NULL,         -- start of the minute that minute_used counts
    day         date        NOT NULL,         -- the UTC day that day_used counts
    minute_used integer     NOT NULL DEFAULT 0, -- mails of this minute, one per recipient
    day_used    integer     NOT NULL DEFAULT 0  -- mails of this day, one per recipient
) WITH (fillfactor = 50);
