-- True if an item of a query may match facts about deliveries, and the room has deliveries: the event store can be
-- installed alone. See can_match_steps. The text of the query excludes most of them, at a tenth of the cost of reading
-- its items: it must have a type Delivery…, a tag of a delivery, or an item for everything.
CREATE OR REPLACE FUNCTION names_steps(p_query jsonb) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF p_query::text !~ '"Delivery|"postroom\.delivery=|\{("(types|tags)": \[\](, )?)*\}' THEN
        RETURN false;
    END IF;
    RETURN (SELECT bool_or(can_match_steps(types, tags)) FROM event_query_items(p_query))
        AND to_regclass('all_steps') IS NOT NULL;
END
$$;
