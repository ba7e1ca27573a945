-- Now if steps or deltas wait for the rollup, otherwise NULL.
CREATE OR REPLACE FUNCTION next_rollup_at() RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_cursor stats_cursor;
BEGIN
    SELECT * INTO v_cursor FROM stats_cursor;
    IF EXISTS (SELECT FROM stat_deltas) OR EXISTS (
        SELECT FROM all_steps AS s
        WHERE (s.transaction_id, s.position) > (v_cursor.transaction_id, v_cursor.position)
    ) THEN
        RETURN now();
    END IF;
    RETURN NULL;
END
$$;
