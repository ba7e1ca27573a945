-- The tag of a query for one tag and nothing else, the most frequent kind; NULL for every other query, however it is
-- written. Plain SQL, so that PostgreSQL can inline it.
CREATE OR REPLACE FUNCTION only_tag(p_query jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN p_query = jsonb_build_array(
        jsonb_build_object('types', '[]'::jsonb, 'tags', jsonb_build_array(p_query #>> '{0,tags,0}')))
    THEN p_query #>> '{0,tags,0}'
END;
