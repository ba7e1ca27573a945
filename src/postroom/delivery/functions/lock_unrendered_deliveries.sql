-- Lock deliveries that are due later and whose template is to be tried before, highest lane first; lock_due_deliveries explains why it is a function.
CREATE OR REPLACE FUNCTION lock_unrendered_deliveries(p_limit integer)
RETURNS TABLE (id bigint, template_id text, template_version_id bigint, locale text)
LANGUAGE plpgsql
ROWS 100
SET jit = off -- these settings for the reasons of lock_due_deliveries
SET enable_seqscan = off -- the same reasons
SET enable_bitmapscan = off -- the same reasons
SET enable_sort = off -- the same reasons
SET enable_hashjoin = off -- the same reasons
SET enable_mergejoin = off -- the same reasons
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT d.id, d.template_id, d.template_version_id, d.locale
    FROM due_deliveries AS w
    JOIN deliveries AS d ON d.id = w.id
    WHERE w.watch_at = '-infinity'
    ORDER BY w.lane, w.id
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED;
END
$$;
