-- The first delivery accepted at or after a time, by its id: a binary search of the primary key, because an index by
-- time would cost every mail. Ids follow times to within seconds: callers allow for that. If all are older, an id above
-- every other.
CREATE OR REPLACE FUNCTION first_delivery_since(p_at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_low bigint := (SELECT min(id) FROM deliveries);
    v_high bigint := (SELECT max(id) + 1 FROM deliveries);
    v_middle bigint;
    v_found record;
BEGIN
    WHILE v_low < v_high LOOP
        v_middle := v_low + (v_high - v_low) / 2;
        SELECT id, created_at INTO v_found FROM deliveries WHERE id >= v_middle ORDER BY id LIMIT 1;
        IF v_found.created_at < p_at THEN
            v_low := v_found.id + 1;
        ELSE
            v_high := v_middle;
        END IF;
    END LOOP;
    RETURN coalesce(v_low, 0);
END
$$;
