-- The functions of next_work_at by whose answer an awake room has work within this time: the loops of the others need not
-- run, and a room without any may sleep.
CREATE OR REPLACE FUNCTION due_work(p_collects_tokens boolean, p_publishers text[], p_within interval) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_until timestamptz := now() + p_within;
BEGIN
    RETURN array_remove(ARRAY[
        CASE WHEN next_delivery_at() <= v_until THEN 'next_delivery_at' END,
        CASE WHEN next_feed_at() <= v_until THEN 'next_feed_at' END,
        CASE WHEN next_event_at() <= v_until THEN 'next_event_at' END,
        CASE WHEN p_collects_tokens AND next_token_at() <= v_until THEN 'next_token_at' END,
        CASE WHEN next_rollup_at() <= v_until THEN 'next_rollup_at' END,
        CASE WHEN next_publication_at(p_publishers) <= v_until THEN 'next_publication_at' END
    ], NULL);
END
$$;
