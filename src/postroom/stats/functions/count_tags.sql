-- The tags of a delivery as statistics count them, one row with an array of key=value; NULL without tags. Statistics are
-- kept for years and name no person, so a value with an address counts as `key=*`, and so does one of more than 100
-- characters; a key of this kind counts as `*`. It returns a row so that PostgreSQL can inline it.
CREATE OR REPLACE FUNCTION count_tags(p_tags jsonb) RETURNS TABLE (tags text[])
LANGUAGE sql STABLE
AS $$
    SELECT array_agg(CASE
        WHEN strpos(tag.key, '@') > 0 OR length(tag.key) > 100 THEN '*'
        WHEN strpos(tag.value, '@') > 0 OR length(tag.value) > 100 THEN tag.key || '=*'
        ELSE tag.key || '=' || tag.value
    END)
    FROM jsonb_each_text(CASE WHEN jsonb_typeof(p_tags) = 'object' THEN p_tags ELSE '{}' END) AS tag
$$;
