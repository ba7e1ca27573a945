-- Delivery: the key of the fingerprints of requests.

-- The secret of the room that fingerprints are keyed with; one row. Without it, whoever reads a fingerprint and the other columns
-- of its delivery finds a one-time code by trying all of them. The roles that accept mail read it, the reader does not.
CREATE TABLE fingerprint_key (
    is_only boolean NOT NULL DEFAULT true PRIMARY KEY,
    key     bytea   NOT NULL,
    CONSTRAINT fingerprint_key_one_row CHECK (is_only),
    CONSTRAINT fingerprint_key_length CHECK (octet_length(key) = 32)
);

REVOKE ALL ON fingerprint_key FROM PUBLIC;

-- Hashed version 4 UUIDs, because six bits of each are fixed.
INSERT INTO fingerprint_key (key)
VALUES (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
