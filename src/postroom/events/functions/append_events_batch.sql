-- Append events unconditionally, in the order that append_events_if relies on.
CREATE OR REPLACE FUNCTION append_events_batch(
    p_types       text[],
    p_tags        text[],
    p_data        jsonb[],
    p_occurred_at timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT -- an application's connection has another search path
AS $$
BEGIN
    PERFORM append_events(p_types, p_tags, p_data, p_occurred_at => p_occurred_at, p_in_order => true);
END
$$;
