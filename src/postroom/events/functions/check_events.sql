-- Refuse events that cannot be stored, naming the field: PR001.
CREATE OR REPLACE FUNCTION check_events(p_types text[], p_tags text[], p_data jsonb[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_wrong record;
BEGIN
    IF cardinality(p_types) IS NULL OR cardinality(p_types) = 0 THEN
        RAISE EXCEPTION 'there must be at least one event' USING ERRCODE = 'PR001', COLUMN = 'events';
    END IF;
    IF cardinality(p_types) IS DISTINCT FROM cardinality(p_tags) OR cardinality(p_types) IS DISTINCT FROM cardinality(p_data) THEN
        RAISE EXCEPTION 'there must be as many types as tags and data' USING ERRCODE = 'PR001', COLUMN = 'events';
    END IF;
    SELECT place - 1 AS place, CASE
            WHEN type IS NULL OR char_length(type) NOT BETWEEN 1 AND 64 THEN 'the type must have 1 to 64 characters'
            WHEN data IS NULL THEN 'the data must be JSON'
            ELSE 'a tag must be key=value and at most 1024 bytes'
        END AS problem
    INTO v_wrong
    FROM unnest(p_types, p_tags, p_data) WITH ORDINALITY AS given(type, tags, data, place)
    WHERE type IS NULL OR char_length(type) NOT BETWEEN 1 AND 64 OR tags IS NULL OR data IS NULL
        OR EXISTS (
            SELECT FROM unnest(tags::text[]) AS carried(tag)
            WHERE tag IS NULL OR position('=' IN tag) < 2 OR octet_length(tag) > 1024
        )
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', v_wrong.problem USING ERRCODE = 'PR001', COLUMN = format('events[%s]', v_wrong.place);
    END IF;
END
$$;
