-- A fingerprint as it is stored: 64 bits of the SHA-256 of the room's key and the digest that request_fingerprint made. The digest
-- alone takes no secret: trying a million one-time codes takes a second. Both parts have a fixed length. Release 0.1.0 stored the
-- digest, so that a stored value may be either. The planner inlines the function; p_key is `(SELECT key FROM fingerprint_key)`.
CREATE OR REPLACE FUNCTION keyed_fingerprint(p_digest bigint, p_key bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$
    SELECT ('x' || encode(sha256(p_key || int8send(p_digest)), 'hex'))::bit(64)::bigint
$$;
