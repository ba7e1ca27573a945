-- Record how far the move of the room is.
CREATE OR REPLACE FUNCTION mark_move(p_mark text) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    EXECUTE format('COMMENT ON TABLE moving IS %L', p_mark);
END
$$;
