-- A fingerprint as it is stored: 64 bits of the SHA-256 of the room's key and the digest that request_fingerprint made. The digest
-- alone takes no secret: trying a million one-time codes takes a second. All parts have a fixed length. Release 0.1.0 stored the
-- digest, so that a stored value may be either. The planner inlines the function.
CREATE OR REPLACE FUNCTION keyed_fingerprint(p_digest bigint) RETURNS bigint
LANGUAGE sql
AS $$
    SELECT hash_array_extended(ARRAY[sha256(int8send(pg_sequence_last_value('fingerprint_key_high'))
        || int8send(pg_sequence_last_value('fingerprint_key_low')) || int8send(p_digest))], 0)
$$;
