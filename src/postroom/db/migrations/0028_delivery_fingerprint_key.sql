-- Delivery: the key of the fingerprints of requests.

-- The secret of the room that fingerprints are keyed with: 126 random bits, as the values of two sequences, because reading a
-- sequence takes less time than reading a table. Without it, a reader of a fingerprint and of the other columns of its delivery
-- finds a one-time code by trying all of them. Roles that accept mail may read it, the reader may not. Never call nextval.
CREATE SEQUENCE fingerprint_key_high;
CREATE SEQUENCE fingerprint_key_low;
REVOKE ALL ON SEQUENCE fingerprint_key_high, fingerprint_key_low FROM PUBLIC;

-- The values are made from hashed version 4 UUIDs, because six bits of each are fixed; a sequence has no negative values and no zero.
SELECT setval(name, greatest(1, ('x' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'))::bit(64)::bigint
    & 9223372036854775807))
FROM unnest(ARRAY['fingerprint_key_high', 'fingerprint_key_low']) AS name;
