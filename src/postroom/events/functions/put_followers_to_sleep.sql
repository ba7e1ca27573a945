-- Let appends notify these followers, whose process sleeps.
CREATE OR REPLACE FUNCTION put_followers_to_sleep(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE event_followers SET is_asleep = true, seen_at = now() WHERE id = ANY(p_ids);
END
$$;
