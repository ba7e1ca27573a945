-- The attachments that cannot be accepted, each with its reason. delivery/check.py has the same rules.
CREATE OR REPLACE FUNCTION check_attachments(p_attachments jsonb) RETURNS TABLE (field text, message text)
LANGUAGE sql STABLE
AS $$
    WITH attachment AS MATERIALIZED (
        SELECT value, format('attachments[%s]', place - 1) AS name, value ->> 'filename' AS filename,
            value ->> 'content_type' AS content_type, value ->> 'content' AS content, value ->> 'content_id' AS content_id,
            jsonb_typeof(value) IS DISTINCT FROM 'object' OR EXISTS (
                SELECT FROM jsonb_each(CASE WHEN jsonb_typeof(value) = 'object' THEN value END) AS member
                WHERE member.key NOT IN ('filename', 'content_type', 'content', 'content_id')
                    OR (jsonb_typeof(member.value) <> 'string'
                        AND NOT (member.key = 'content_id' AND jsonb_typeof(member.value) = 'null'))
            ) AS is_strange
        FROM jsonb_array_elements(CASE WHEN jsonb_typeof(p_attachments) = 'array' THEN p_attachments END)
            WITH ORDINALITY AS given(value, place)
    )
    SELECT 'attachments', 'must be a list of objects with filename, content_type and content in base64'
    WHERE jsonb_typeof(p_attachments) <> 'array'
    UNION ALL
    SELECT name, 'must be an object with filename, content_type, content in base64 and, if wanted, content_id'
    FROM attachment
    WHERE is_strange OR num_nulls(filename, content_type, content) > 0
    UNION ALL
    SELECT name || '.' || rule.member, rule.reason
    FROM attachment, LATERAL (VALUES
        ('filename', 'must be 1 to 255 characters without control characters', filename !~ '^[^\x01-\x1f\x7f]{1,255}$'),
        ('content_type', 'is not a media type such as image/png or text/calendar; method=REQUEST', content_type
            !~ ('(?i)^[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127}'
            '(; ?[a-z0-9!#$&^_.+-]{1,127}=([a-z0-9!#$&^_.+-]{1,127}|"[ !#-:<-\[\]-~]{0,200}")){0,10}$')),
        ('content_id', 'must be printable ASCII without spaces', content_id !~ '^[!-;=?-~]{1,200}$'),
        ('content', 'is not base64', content !~ '^[A-Za-z0-9+/]*={0,2}$' OR length(content) % 4 <> 0)
    ) AS rule(member, reason, is_broken)
    WHERE NOT is_strange AND rule.is_broken
    UNION ALL
    SELECT 'attachments', 'must be at most 26214400 bytes together'
    FROM attachment
    HAVING sum(length(content) / 4 * 3 - length(content) + length(rtrim(content, '='))) > 26214400
$$;
