-- The time at which the loops of a worker have work in this room: the least of the capabilities' own times. NULL: the
-- room needs no worker until something is written. The arguments say what the worker does at all.
CREATE OR REPLACE FUNCTION next_work_at(p_collects_tokens boolean, p_publishers text[]) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN least(
        next_delivery_at(),
        next_feed_at(),
        next_event_at(),
        CASE WHEN p_collects_tokens THEN next_token_at() END,
        next_rollup_at(),
        next_publication_at(p_publishers)
    );
END
$$;
