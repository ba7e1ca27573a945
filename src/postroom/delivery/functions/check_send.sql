-- Refuse what send() cannot accept, naming the field; nothing has been stored yet.
CREATE OR REPLACE FUNCTION check_send(
    p_to              text[],
    p_subject         text,
    p_text            text,
    p_html            text,
    p_template        text,
    p_lane            text,
    p_source          text,
    p_idempotency_key text,
    p_headers         jsonb
) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_field   text;
    v_message text;
BEGIN
    SELECT field, message INTO v_field, v_message
    FROM (VALUES
        ('to', 'at least one recipient is required', coalesce(cardinality(p_to), 0) = 0),
        ('lane', 'must be auth, transactional or bulk', coalesce(p_lane NOT IN ('auth', 'transactional', 'bulk'), true)),
        ('source', 'must be 1 to 100 characters',
            coalesce(length(p_source) NOT BETWEEN 1 AND 100 OR p_source ~ '[\x01-\x1f\x7f]', true)),
        ('idempotency_key', 'must be 1 to 255 characters',
            length(p_idempotency_key) NOT BETWEEN 1 AND 255 OR p_idempotency_key ~ '[\x01-\x1f\x7f]'),
        ('template', 'is not a template id', p_template !~ '^[a-z0-9][a-z0-9._-]{0,99}$'),
        ('template', 'give a template or content, not both',
            p_template IS NOT NULL AND num_nonnulls(p_subject, p_text, p_html) > 0),
        ('subject', 'is required without a template', p_template IS NULL AND coalesce(btrim(p_subject), '') = ''),
        ('subject', 'must be one line of at most 998 characters', p_subject ~ '[\x01-\x1f\x7f]' OR length(p_subject) > 998),
        ('text', 'text or html is required without a template', p_template IS NULL AND num_nonnulls(p_text, p_html) = 0),
        ('text', 'must be at most 5242880 bytes', octet_length(p_text) > 5242880),
        ('html', 'must be at most 5242880 bytes', octet_length(p_html) > 5242880),
        ('headers', 'must be an object of one-line strings', coalesce(
            jsonb_typeof(p_headers) <> 'object'
            OR jsonb_path_exists(p_headers, '$.* ? (@.type() != "string" || @ like_regex "[\\x01-\\x1f\\x7f]")'), false))
    ) AS rule(field, message, is_broken)
    WHERE is_broken
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%: %', v_field, v_message USING ERRCODE = 'PR001', COLUMN = v_field;
    END IF;
END
$$;
