-- The tag with the fewest events after a place, from a small sample: the cheapest way to the events that have all tags.
-- A larger sample, up to p_longest events of each tag, is taken only if the first is inconclusive.
CREATE OR REPLACE FUNCTION rarest_tag(p_tags text[], p_from xid8 DEFAULT '0', p_longest integer DEFAULT 20) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_length integer := 20;
    v_rarest record;
BEGIN
    IF cardinality(p_tags) = 1 THEN
        RETURN p_tags[1];
    END IF;
    LOOP
        SELECT given.tag, glance.found
        INTO v_rarest
        FROM unnest(p_tags) AS given(tag), LATERAL (
            SELECT count(*) AS found
            FROM (SELECT FROM event_tags AS e WHERE e.tag = given.tag AND e.transaction_id >= p_from LIMIT v_length) AS some_events
        ) AS glance
        ORDER BY glance.found, given.tag
        LIMIT 1;
        EXIT WHEN v_rarest.found < v_length OR v_length >= p_longest;
        v_length := v_length * 16;
    END LOOP;
    RETURN v_rarest.tag;
END
$$;
