-- Accept one mail from SQL, inside the caller's own transaction: SELECT postroom.send('{ada@example.org}', p_subject =>
-- …) Returns the delivery's id; the same key with the same content returns the first id again.
--
-- It runs as the owner of the room, so that an application needs EXECUTE on this function and no right on any table.
-- The source is bound to the application's role: see bind_source.
CREATE OR REPLACE FUNCTION send(
    p_to              text[],
    p_subject         text        DEFAULT NULL,
    p_text            text        DEFAULT NULL,
    p_html            text        DEFAULT NULL,
    p_template        text        DEFAULT NULL,
    p_variables       jsonb       DEFAULT NULL,
    p_locale          text        DEFAULT NULL,
    p_lane            text        DEFAULT 'transactional',
    p_source          text        DEFAULT NULL,
    p_idempotency_key text        DEFAULT NULL,
    p_send_at         timestamptz DEFAULT NULL,
    p_expires_at      timestamptz DEFAULT NULL,
    p_from            text        DEFAULT NULL,
    p_cc              text[]      DEFAULT '{}',
    p_bcc             text[]      DEFAULT '{}',
    p_reply_to        text[]      DEFAULT '{}',
    p_headers         jsonb       DEFAULT NULL,
    p_attachments     jsonb       DEFAULT NULL,
    p_tags            jsonb       DEFAULT NULL,
    p_custom_data     jsonb       DEFAULT NULL,
    p_idempotency_ttl interval    DEFAULT '7 days',
    p_max_retries     integer     DEFAULT NULL,
    p_give_up_after   interval    DEFAULT NULL,
    p_traceparent     text        DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER -- an application may send without rights on other people's mail
SET search_path FROM CURRENT
AS $$
DECLARE
    v_source     text := bind_source(p_source);
    v_from       text[];
    v_version_id bigint;
    v_is_limited boolean;
    v_kind       recipient_kind;
    v_list       text[];
    v_parsed     text[];
    v_kinds      recipient_kind[];
    v_emails     text[];
    v_names      text[];
    v_accepted   record;
BEGIN
    SELECT version_id, EXISTS (SELECT FROM room_limits) INTO v_version_id, v_is_limited
    FROM current_template_version(p_template);
    -- One expression that is true for the usual mail. For any other, the functions name the field or accept it.
    IF (cardinality(p_to) > 0
        AND cardinality(p_to) + coalesce(cardinality(p_cc), 0) + coalesce(cardinality(p_bcc), 0) <= 100
        AND coalesce(cardinality(p_reply_to), 0) <= 100
        AND p_lane IN ('auth', 'transactional', 'bulk')
        AND (p_idempotency_key IS NULL
            OR length(p_idempotency_key) BETWEEN 1 AND 255 AND p_idempotency_key !~ '[\x01-\x1f\x7f]')
        AND CASE WHEN p_template IS NULL
            THEN p_subject ~ '^[^\r\n]*[!-~][^\r\n]*$' AND length(p_subject) <= 998 AND num_nonnulls(p_text, p_html) > 0
            ELSE v_version_id IS NOT NULL AND num_nonnulls(p_subject, p_text, p_html) = 0 END
        AND coalesce(octet_length(p_text), 0) <= 5242880 AND coalesce(octet_length(p_html), 0) <= 5242880
        AND (p_locale IS NULL OR p_locale ~ '^[a-z]{2}$')
        AND (p_variables IS NULL OR jsonb_typeof(p_variables) = 'object' AND NOT p_variables @? 'strict $.* ? (@.type() != "string")')
        AND num_nonnulls(p_send_at, p_expires_at, p_max_retries, p_give_up_after, p_headers, p_attachments, p_tags,
            p_custom_data) = 0
        AND p_idempotency_ttl BETWEEN interval '1 second' AND interval '10 years') IS NOT TRUE
    THEN
        PERFORM check_send(p_to, p_cc, p_bcc, p_reply_to, p_subject, p_text, p_html, p_template, p_lane, p_idempotency_key,
            p_send_at, p_expires_at);
        PERFORM check_patience(p_max_retries, p_give_up_after);
        PERFORM check_send_data(p_locale, p_variables, p_headers, p_attachments, p_tags, p_custom_data, p_idempotency_ttl);
    END IF;

    IF p_from IS NOT NULL THEN
        v_from := CASE WHEN is_plain_address(p_from) THEN ARRAY[p_from, NULL] ELSE parse_address('from', p_from) END;
    END IF;
    IF v_is_limited THEN
        PERFORM check_room_limits(v_from[1]);
    END IF;
    IF (cardinality(p_to || p_cc || p_bcc || p_reply_to) = 1 AND is_plain_address(p_to[1])) IS NOT TRUE THEN
        FOREACH v_kind IN ARRAY '{to,cc,bcc,reply_to}'::recipient_kind[] LOOP
            v_list := CASE v_kind WHEN 'to' THEN p_to WHEN 'cc' THEN p_cc WHEN 'bcc' THEN p_bcc ELSE p_reply_to END;
            FOR i IN 1..coalesce(cardinality(v_list), 0) LOOP
                v_parsed := CASE WHEN is_plain_address(v_list[i]) THEN ARRAY[v_list[i], NULL]
                    ELSE parse_address(v_kind || '[' || i - 1 || ']', coalesce(v_list[i], '')) END;
                v_kinds := v_kinds || v_kind;
                v_emails := v_emails || v_parsed[1];
                v_names := v_names || v_parsed[2];
            END LOOP;
        END LOOP;
    END IF;

    v_accepted := accept_delivery(
        p_source => v_source, p_kinds => coalesce(v_kinds, '{to}'), p_emails => coalesce(v_emails, p_to),
        p_names => coalesce(v_names, '{NULL}'), p_lane => p_lane::delivery_lane,
        p_idempotency_key => p_idempotency_key, p_idempotency_ttl => p_idempotency_ttl, p_send_at => p_send_at,
        p_expires_at => p_expires_at, p_ladder => CASE WHEN p_lane = 'auth' THEN 'auth' ELSE 'generic' END,
        p_max_retries => p_max_retries, p_give_up_after => p_give_up_after, p_template_id => p_template,
        p_template_version_id => v_version_id, p_locale => p_locale, p_variables => p_variables,
        p_from_email => v_from[1], p_from_name => v_from[2], p_subject => p_subject, p_text => p_text, p_html => p_html,
        p_headers => p_headers, p_attachments => p_attachments, p_tags => p_tags, p_custom_data => p_custom_data,
        p_traceparent => CASE WHEN p_traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN p_traceparent END);
    IF v_accepted.acceptance = 'conflict' THEN
        RAISE EXCEPTION 'this idempotency key was already used with a different request'
            USING ERRCODE = 'PR002', COLUMN = 'idempotency_key';
    END IF;
    RETURN v_accepted.delivery_id;
END
$$;
