-- Reject events that cannot be stored or read back, naming the field: PR001.
--
-- This runs at every append. Data is parsed only if its text is long enough to be nested too deeply or to contain a
-- number that is too large, because the length of the text is cheap to check.
CREATE OR REPLACE FUNCTION check_events(p_types text[], p_tags text[], p_data jsonb[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_wrong record;
BEGIN
    IF cardinality(p_types) IS NULL OR cardinality(p_types) = 0 THEN
        RAISE EXCEPTION 'must contain at least one event' USING ERRCODE = 'PR001', COLUMN = 'events';
    END IF;
    IF array_dims(p_types) <> '[1:' || cardinality(p_types) || ']' OR array_dims(p_tags) IS DISTINCT FROM array_dims(p_types)
        OR array_dims(p_data) IS DISTINCT FROM array_dims(p_types)
    THEN
        RAISE EXCEPTION 'must have as many types as tags and data, each a one-dimensional array' USING ERRCODE = 'PR001', COLUMN = 'events';
    END IF;
    SELECT place - 1 AS place, CASE
            WHEN type IS NULL OR char_length(type) NOT BETWEEN 1 AND 64 THEN 'the type must have 1 to 64 characters'
            WHEN data IS NULL THEN 'the data must be JSON'
            WHEN NOT is_event_data(data) THEN 'the data must be at most 100 levels deep, its numbers at most 1.8e308'
            WHEN array_ndims(tags::text[]) > 1 THEN 'the tags must be a plain array'
            ELSE 'a tag must be key=value and at most 1024 bytes'
        END AS problem
    INTO v_wrong
    FROM unnest(p_types, p_tags, p_data) WITH ORDINALITY AS given(type, tags, data, place)
    WHERE type IS NULL OR char_length(type) NOT BETWEEN 1 AND 64 OR tags IS NULL OR data IS NULL
        OR (octet_length(data::text) > 200 AND NOT is_event_data(data))
        OR array_ndims(tags::text[]) > 1
        OR EXISTS (
            SELECT FROM unnest(tags::text[]) AS carried(tag)
            WHERE tag IS NULL OR position('=' IN tag) < 2 OR octet_length(tag) > 1024
        )
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', v_wrong.problem USING ERRCODE = 'PR001', COLUMN = format('events[%s]', v_wrong.place);
    END IF;
EXCEPTION
    WHEN invalid_text_representation OR array_subscript_error THEN
        RAISE EXCEPTION 'an element of the tags must be an array literal, such as {wallet=1}'
            USING ERRCODE = 'PR001', COLUMN = 'events';
END
$$;
