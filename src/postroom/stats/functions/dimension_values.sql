-- The values by which one count is found in stats_dimension_hours: one for each dimension, and one for each tag.
CREATE OR REPLACE FUNCTION dimension_values(
    p_campaign_id bigint, p_sender_account_id bigint, p_template_id text, p_tags text[]
) RETURNS TABLE (dimension stats_dimension, value text)
LANGUAGE sql STABLE
AS $$
    SELECT 'total'::stats_dimension, ''
    UNION ALL
    SELECT 'campaign', coalesce(p_campaign_id, 0)::text
    UNION ALL
    SELECT 'sender', coalesce(p_sender_account_id, 0)::text
    UNION ALL
    SELECT 'template', coalesce(p_template_id, '')
    UNION ALL
    SELECT 'tag', tag FROM unnest(coalesce(p_tags, '{""}')) AS tag
$$;
