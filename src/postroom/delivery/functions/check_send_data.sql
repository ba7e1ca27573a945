-- The second part of check_send: the JSON arguments of send() and a few others. Names the field, stores nothing. Each
-- rule is looked at only if its argument is given.
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
    IF p_locale !~ '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$' THEN
        v_field := 'locale';
        v_message := 'is not a locale such as fr or fr-FR';
    ELSIF jsonb_typeof(p_variables) <> 'object' THEN
        v_field := 'variables';
        v_message := 'must be an object';
    ELSIF jsonb_typeof(p_tags) <> 'object' OR p_tags @? 'strict $.* ? (@.type() != "string")' THEN
        v_field := 'tags';
        v_message := 'must be an object of strings';
    ELSIF jsonb_array_length(jsonb_path_query_array(p_tags, 'strict $.*')) > 50 THEN
        v_field := 'tags';
        v_message := 'at most 50 are allowed';
    ELSIF jsonb_typeof(p_custom_data) <> 'object' THEN
        v_field := 'custom_data';
        v_message := 'must be an object';
    ELSIF jsonb_typeof(p_headers) <> 'object' OR p_headers @? 'strict $.* ? (@.type() != "string")' THEN
        v_field := 'headers';
        v_message := 'must be an object of strings';
    ELSIF coalesce(p_idempotency_ttl <= interval '0' OR p_idempotency_ttl > interval '10 years', true) THEN
        v_field := 'idempotency_ttl';
        v_message := 'must be longer than nothing and at most 10 years';
    -- Python cannot decode deeper nesting or longer numbers; templates stop at 32 levels.
    ELSIF p_variables @? 'strict $.**{32} ? (@.type() == "object" || @.type() == "array")'
        OR p_variables @? 'strict $.** ? (@.type() == "number" && (@ > 9223372036854775807 || @ < -9223372036854775807))'
    THEN
        v_field := 'variables';
        v_message := 'must be JSON with numbers within 64 bits, nested at most 32 deep';
    ELSIF p_custom_data @? 'strict $.**{32} ? (@.type() == "object" || @.type() == "array")'
        OR p_custom_data @? 'strict $.** ? (@.type() == "number" && (@ > 9223372036854775807 || @ < -9223372036854775807))'
    THEN
        v_field := 'custom_data';
        v_message := 'must be JSON with numbers within 64 bits, nested at most 32 deep';
    ELSIF octet_length(p_variables::text) > 262144
        OR greatest(octet_length(p_headers::text), octet_length(p_tags::text), octet_length(p_custom_data::text)) > 65536
    THEN
        v_field := CASE
            WHEN octet_length(p_variables::text) > 262144 THEN 'variables' WHEN octet_length(p_headers::text) > 65536 THEN 'headers'
            WHEN octet_length(p_tags::text) > 65536 THEN 'tags' ELSE 'custom_data' END;
        v_message := format('must be at most %s bytes of JSON', CASE v_field WHEN 'variables' THEN 262144 ELSE 65536 END);
    ELSIF p_headers IS NOT NULL OR p_attachments IS NOT NULL THEN
        SELECT field, message INTO v_field, v_message
        FROM (
            SELECT field, message FROM check_headers(p_headers)
            UNION ALL
            SELECT field, message FROM check_attachments(p_attachments)
        ) AS broken
        LIMIT 1;
    END IF;
    IF v_field IS NOT NULL THEN
        RAISE EXCEPTION '%: %', v_field, v_message USING ERRCODE = 'PR001', COLUMN = v_field;
    END IF;
END
$$;
