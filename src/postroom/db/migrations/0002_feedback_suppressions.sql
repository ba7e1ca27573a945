-- Addresses that get nothing, or nothing in bulk, and why.

CREATE TYPE suppression_reason AS ENUM (
    'soft_bounce', -- for a while
    'unsubscribe', -- asked for no bulk mail; one-time codes and receipts still arrive
    'manual',
    'hard_bounce',
    'complaint'
);

CREATE TYPE suppression_scope AS ENUM (
    'bulk', -- only the bulk lane is closed
    'all'
);

-- Addresses that get no mail, or no bulk mail, and why.
CREATE TABLE suppressions (
    address    text               NOT NULL, -- lower case
    scope      suppression_scope  NOT NULL,
    reason     suppression_reason NOT NULL,
    created_at timestamptz        NOT NULL DEFAULT now(),
    until      timestamptz,                 -- NULL: for good
    origin     text               NOT NULL DEFAULT 'api',
    PRIMARY KEY (address, scope),
    CONSTRAINT suppressions_address_lower CHECK (address = lower(address))
);
