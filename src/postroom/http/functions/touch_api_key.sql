-- Record that an API key is in use, at most once a minute.
CREATE OR REPLACE FUNCTION touch_api_key(p_id bigint) RETURNS void
LANGUAGE sql
AS $$
    UPDATE api_keys
    SET last_used_at = now()
    WHERE id = p_id AND revoked_at IS NULL AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
$$;
