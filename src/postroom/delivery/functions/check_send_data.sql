-- The second part of check_send: the JSON arguments of send() and a few others. Names the field, stores nothing.
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
        ('tags', 'must be an object of strings', jsonb_typeof(p_tags) <> 'object'
            OR jsonb_path_exists(p_tags, 'strict $.* ? (@.type() != "string")')),
        ('tags', 'at most 50 are allowed', jsonb_typeof(p_tags) = 'object'
            AND (SELECT count(*) FROM jsonb_object_keys(CASE WHEN jsonb_typeof(p_tags) = 'object' THEN p_tags END)) > 50),
        ('custom_data', 'must be an object', jsonb_typeof(p_custom_data) <> 'object'),
        ('headers', 'must be an object of strings', jsonb_typeof(p_headers) <> 'object'
            OR jsonb_path_exists(p_headers, 'strict $.* ? (@.type() != "string")')),
        ('idempotency_ttl', 'must be longer than nothing and at most 10 years',
            coalesce(p_idempotency_ttl <= interval '0' OR p_idempotency_ttl > interval '10 years', true))
    ) AS rule(field, message, is_broken)
    WHERE is_broken
    UNION ALL
    -- Python cannot decode deeper nesting or longer numbers; templates stop at 32 levels.
    SELECT field, 'must be JSON with numbers within 64 bits, nested at most 32 deep'
    FROM (VALUES ('variables', p_variables), ('custom_data', p_custom_data)) AS given(field, value)
    WHERE jsonb_path_exists(value, 'strict $.**{32} ? (@.type() == "object" || @.type() == "array")')
        OR jsonb_path_exists(value, 'strict $.** ? (@.type() == "number"
            && (@ > 9223372036854775807 || @ < -9223372036854775807))')
    UNION ALL
    SELECT field, message FROM check_headers(CASE WHEN jsonb_typeof(p_headers) = 'object' THEN p_headers END)
    UNION ALL
    SELECT field, message FROM check_attachments(p_attachments)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%: %', v_field, v_message USING ERRCODE = 'PR001', COLUMN = v_field;
    END IF;
END
$$;
