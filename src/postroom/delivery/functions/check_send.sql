-- Reject arguments that send() cannot accept, naming the field; nothing has been stored yet. The rules are those of
-- delivery/check.py; tests/support/requests.py holds the cases for both.
CREATE OR REPLACE FUNCTION check_send(
    p_to              text[],
    p_cc              text[],
    p_bcc             text[],
    p_reply_to        text[],
    p_subject         text,
    p_text            text,
    p_html            text,
    p_template        text,
    p_lane            text,
    p_idempotency_key text,
    p_send_at         timestamptz,
    p_expires_at      timestamptz
) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_first   CONSTANT timestamptz := '1970-01-01 00:00:00Z';
    c_last    CONSTANT timestamptz := '9998-12-31 23:59:59Z'; -- Python supports years up to 9999, in every time zone
    -- the characters that Python's str.strip removes; \S depends on the locale of the database
    c_not_blank CONSTANT text :=
        '[^\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]';
    v_field   text;
    v_message text;
BEGIN
    SELECT field, message INTO v_field, v_message
    FROM (VALUES
        ('to', 'at least one recipient is required', coalesce(cardinality(p_to), 0) = 0),
        ('to', 'must be a plain array', array_ndims(p_to) > 1),
        ('cc', 'must be a plain array', array_ndims(p_cc) > 1),
        ('bcc', 'must be a plain array', array_ndims(p_bcc) > 1),
        ('reply_to', 'must be a plain array', array_ndims(p_reply_to) > 1),
        ('to', 'at most 100 recipients are allowed, counting cc and bcc',
            coalesce(cardinality(p_to), 0) + coalesce(cardinality(p_cc), 0) + coalesce(cardinality(p_bcc), 0) > 100),
        ('reply_to', 'at most 100 are allowed', cardinality(p_reply_to) > 100),
        ('lane', 'must be auth, transactional or bulk', coalesce(p_lane NOT IN ('auth', 'transactional', 'bulk'), true)),
        ('idempotency_key', 'must be 1 to 255 characters without control characters',
            length(p_idempotency_key) NOT BETWEEN 1 AND 255 OR p_idempotency_key ~ '[\x01-\x1f\x7f]'),
        ('template', 'is not a template id', p_template !~ '^[a-z0-9][a-z0-9._-]{0,99}$'),
        ('template', format('there is no template %L', p_template),
            p_template IS NOT NULL AND (SELECT version_id IS NULL FROM current_template_version(p_template))),
        ('subject', 'cannot be given together with a template', p_template IS NOT NULL AND p_subject IS NOT NULL),
        ('text', 'cannot be given together with a template', p_template IS NOT NULL AND p_text IS NOT NULL),
        ('html', 'cannot be given together with a template', p_template IS NOT NULL AND p_html IS NOT NULL),
        ('subject', 'is required without a template', p_template IS NULL AND coalesce(p_subject, '') !~ c_not_blank),
        ('subject', 'must be one line of at most 998 characters', p_subject ~ '[\r\n]' OR length(p_subject) > 998),
        ('text', 'text or html is required without a template', p_template IS NULL AND num_nonnulls(p_text, p_html) = 0),
        ('text', 'must be at most 5242880 bytes', octet_length(p_text) > 5242880),
        ('html', 'must be at most 5242880 bytes', octet_length(p_html) > 5242880),
        ('send_at', 'must be between the years 1970 and 9998', p_send_at NOT BETWEEN c_first AND c_last),
        ('expires_at', 'must be between the years 1970 and 9998', p_expires_at NOT BETWEEN c_first AND c_last)
    ) AS rule(field, message, is_broken)
    WHERE is_broken
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%: %', v_field, v_message USING ERRCODE = 'PR001', COLUMN = v_field;
    END IF;
END
$$;
