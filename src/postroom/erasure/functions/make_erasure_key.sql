-- Create the room's key at the first erasure: 64 random bytes, the block length of the hash; only the XORs with HMAC's
-- two paddings are stored. The random bits are hashed version 4 UUIDs, because six bits of each are fixed.
CREATE OR REPLACE FUNCTION make_erasure_key() RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- a role that erases creates the key and need not be able to read it
SET search_path FROM CURRENT
AS $$
DECLARE
    v_key   bytea := '';
    v_inner bytea := '';
    v_outer bytea := '';
BEGIN
    IF EXISTS (SELECT FROM erasure_key) THEN
        RETURN;
    END IF;
    FOR v_half IN 1..2 LOOP
        v_key := v_key || sha256(
            uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    END LOOP;
    v_inner := v_key;
    v_outer := v_key;
    FOR v_place IN 0..63 LOOP
        v_inner := set_byte(v_inner, v_place, get_byte(v_key, v_place) # 54); -- 0x36
        v_outer := set_byte(v_outer, v_place, get_byte(v_key, v_place) # 92); -- 0x5c
    END LOOP;
    INSERT INTO erasure_key (inner_pad, outer_pad) VALUES (v_inner, v_outer) ON CONFLICT DO NOTHING;
END
$$;
