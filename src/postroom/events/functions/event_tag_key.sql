-- The lock key of a tag; see lock_events. Tags of Postroom's own events (postroom.…) share one lock per key, because
-- hundreds of them are written together and conditions on them are rare; any other tag has its own lock.
CREATE OR REPLACE FUNCTION event_tag_key(p_tag text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT 'tag ' || CASE WHEN p_tag LIKE 'postroom.%' THEN split_part(p_tag, '=', 1) ELSE p_tag END
$$;
