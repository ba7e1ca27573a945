-- The tag with the fewest events, as far as a glance tells: it is the shortest way to the events that carry all of them.
CREATE OR REPLACE FUNCTION rarest_tag(p_tags text[]) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF cardinality(p_tags) = 1 THEN
        RETURN p_tags[1];
    END IF;
    RETURN (
        SELECT given.tag
        FROM unnest(p_tags) AS given(tag)
        ORDER BY (SELECT count(*) FROM (SELECT FROM event_tags WHERE event_tags.tag = given.tag LIMIT 100) AS glance), given.tag
        LIMIT 1
    );
END
$$;
