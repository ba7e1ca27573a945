-- Reject values of the columns that send(…) knows by another name, naming the view's column; send(…) checks the others.
CREATE OR REPLACE FUNCTION check_email_queue(
    p_recipient_email text,
    p_recipient_name  text,
    p_html_body       text,
    p_text_body       text
) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_column  text;
    v_message text;
BEGIN
    PERFORM parse_address('recipient_email', coalesce(p_recipient_email, ''));
    SELECT name, message INTO v_column, v_message
    FROM (VALUES
        ('recipient_email', 'is an address and nothing else; its owner''s name goes to recipient_name',
            p_recipient_email ~ '[<>]'),
        ('recipient_name', 'must be one line of at most 200 characters without <, > and "',
            p_recipient_name ~ '[\x01-\x1f\x7f<>"]' OR length(p_recipient_name) > 200),
        ('html_body', 'html_body or text_body is required', num_nonnulls(p_html_body, p_text_body) = 0),
        ('html_body', 'must be at most 5242880 bytes', octet_length(p_html_body) > 5242880),
        ('text_body', 'must be at most 5242880 bytes', octet_length(p_text_body) > 5242880)
    ) AS rule(name, message, is_broken)
    WHERE is_broken
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%: %', v_column, v_message USING ERRCODE = 'PR001', COLUMN = v_column;
    END IF;
END
$$;
