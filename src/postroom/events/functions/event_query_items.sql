-- The items of a query, [{"types": […], "tags": […]}, …]: an event matches the query if it matches one of them, and an
-- item if its type is among the types (empty: any) and it has all of the tags (empty: any). [{}] matches everything. A
-- tag that no event can have, such as wallet:1, is rejected: a condition with it would always hold.
CREATE OR REPLACE FUNCTION event_query_items(p_query jsonb) RETURNS TABLE (types text[], tags text[])
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF jsonb_typeof(p_query) IS DISTINCT FROM 'array' OR p_query = '[]' OR jsonb_path_exists(
        p_query, 'strict $[*] ? (@.type() != "object" || exists(@.keyvalue() ? (@.key != "types" && @.key != "tags"
            || @.value.type() != "array" || exists(@.value[*] ? (@.type() != "string"))
            || @.key == "tags" && exists(@.value[*] ? (!(@ like_regex "^[^=]+=" flag "s"))))))', silent => true)
    THEN
        RAISE EXCEPTION 'must be a list of items, each with types, and tags of the form key=value'
            USING ERRCODE = 'PR001', COLUMN = 'query';
    END IF;
    RETURN QUERY
    SELECT coalesce(item.types, '{}'), coalesce(item.tags, '{}')
    FROM jsonb_to_recordset(p_query) AS item(types text[], tags text[]);
END
$$;
