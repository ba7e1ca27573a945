-- Events: locks of appends that only Postroom's roles can take.

-- The lock of all appends: they lock this table. Advisory locks can be taken by every role that may connect, a table only by those
-- that have a right on it. It has no rows.
CREATE TABLE event_gate (
    is_only boolean NOT NULL DEFAULT true PRIMARY KEY -- never stored
);

-- The secret from which the keys of advisory locks on tags and types follow, so that they cannot be computed from names. Never
-- call nextval.
CREATE SEQUENCE event_lock_key;

REVOKE ALL ON event_gate FROM PUBLIC;
REVOKE ALL ON SEQUENCE event_lock_key FROM PUBLIC;

SELECT setval('event_lock_key',
    greatest(1, ('x' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'))::bit(64)::bigint
        & 9223372036854775807));
