-- The other half of check_send: the JSON that send() is given, and what stands beside it. Names the field, stores nothing.
-- The headers that follow from the delivery itself are those of delivery/header.py.
CREATE OR REPLACE FUNCTION check_send_data(
    p_locale          text,
    p_variables       jsonb,
    p_headers         jsonb,
    p_attachments     jsonb,
    p_tags            jsonb,
    p_custom_data     jsonb,
    p_idempotency_ttl interval
) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_field   text;
    v_message text;
BEGIN
    SELECT field, message INTO v_field, v_message
    FROM (VALUES
        ('locale', 'is not a locale such as fr or fr-FR', p_locale !~ '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$'),
        ('variables', 'must be an object', jsonb_typeof(p_variables) <> 'object'),
        ('tags', 'must be an object of strings',
            jsonb_typeof(p_tags) <> 'object' OR jsonb_path_exists(p_tags, '$.* ? (@.type() != "string")')),
        ('custom_data', 'must be an object', jsonb_typeof(p_custom_data) <> 'object'),
        ('idempotency_ttl', 'must be longer than nothing', coalesce(p_idempotency_ttl <= interval '0', true)),
        ('attachments', 'must be a list of objects with filename, content_type and content in base64',
            jsonb_typeof(p_attachments) <> 'array')
    ) AS rule(field, message, is_broken)
    WHERE is_broken
    UNION ALL
    SELECT format('attachments[%s]', place - 1), 'must have filename, content_type and content in base64'
    FROM jsonb_array_elements(CASE WHEN jsonb_typeof(p_attachments) = 'array' THEN p_attachments END)
        WITH ORDINALITY AS attachment(value, place)
    WHERE (jsonb_typeof(value -> 'filename') = 'string' AND value ->> 'filename' ~ '^[^\x01-\x1f\x7f]{1,255}$'
        AND jsonb_typeof(value -> 'content_type') = 'string' AND value ->> 'content_type'
            ~ '(?i)^[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+'
            '(; ?[a-z0-9!#$&^_.+-]+=([a-z0-9!#$&^_.+-]+|"[ !#-:<-\[\]-~]{0,200}")){0,10}$'
        AND jsonb_typeof(value -> 'content') = 'string' AND value ->> 'content' ~ '^[A-Za-z0-9+/]*={0,2}$'
        AND length(value ->> 'content') % 4 = 0
        AND coalesce(jsonb_typeof(value -> 'content_id') IN ('string', 'null'), true)) IS NOT TRUE
    UNION ALL
    SELECT 'headers.' || name, 'is set by Postroom and cannot be given, or is not a header name'
    FROM jsonb_object_keys(CASE WHEN jsonb_typeof(p_headers) = 'object' THEN p_headers END) AS name
    WHERE name !~ '^[!-9;-~]{1,76}$'
        OR lower(name) IN (
            'authentication-results', 'bcc', 'cc', 'date', 'delivered-to', 'dkim-signature', 'domainkey-signature',
            'errors-to', 'from', 'mime-version', 'received', 'received-spf', 'reply-to', 'return-path', 'sender',
            'subject', 'to')
        OR lower(name) ~ '^(arc|content|resent|postroom)-'
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%: %', v_field, v_message USING ERRCODE = 'PR001', COLUMN = v_field;
    END IF;
END
$$;
