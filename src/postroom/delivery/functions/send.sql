-- Accept one mail from SQL, inside the caller's own transaction: SELECT postroom.send('{ada@example.org}', p_subject =>
-- …)
-- Returns the delivery's id; the same key with the same content returns the first id again.
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
    p_give_up_after   interval    DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER -- an application may send without rights on other people's mail
SET search_path FROM CURRENT
AS $$
DECLARE
    v_source   text := bind_source(p_source);
    v_from     text[] := parse_address('from', p_from);
    v_kinds    text[];
    v_places   integer[];
    v_emails   text[];
    v_names    text[];
    v_accepted record;
BEGIN
    PERFORM check_send(p_to, p_cc, p_bcc, p_reply_to, p_subject, p_text, p_html, p_template, p_lane, p_idempotency_key,
        p_send_at, p_expires_at);
    PERFORM check_send_data(p_locale, p_variables, p_headers, p_attachments, p_tags, p_custom_data, p_idempotency_ttl);
    PERFORM check_patience(p_max_retries, p_give_up_after);

    SELECT array_agg(kind ORDER BY kind, place), array_agg(place ORDER BY kind, place),
        array_agg(parsed[1] ORDER BY kind, place), array_agg(parsed[2] ORDER BY kind, place)
    INTO v_kinds, v_places, v_emails, v_names
    FROM (
        SELECT given.kind, address.place::integer - 1 AS place,
            parse_address(format('%s[%s]', given.kind, address.place - 1), coalesce(address.value, '')) AS parsed
        FROM (VALUES ('to', p_to), ('cc', p_cc), ('bcc', p_bcc), ('reply_to', p_reply_to)) AS given(kind, list),
            unnest(given.list) WITH ORDINALITY AS address(value, place)
    ) AS addresses;

    SELECT * INTO v_accepted
    FROM accept_deliveries(
        p_channel => '{email}', p_lane => ARRAY[p_lane], p_source => ARRAY[v_source],
        p_idempotency_key => ARRAY[p_idempotency_key], p_send_at => ARRAY[p_send_at], p_expires_at => ARRAY[p_expires_at],
        p_ladder => ARRAY[CASE WHEN p_lane = 'auth' THEN 'auth' ELSE 'generic' END],
        p_max_retries => ARRAY[p_max_retries], p_give_up_after => ARRAY[p_give_up_after],
        p_template_id => ARRAY[p_template], p_locale => ARRAY[p_locale],
        p_variables => ARRAY[p_variables::text],
        p_from_email => ARRAY[v_from[1]], p_from_name => ARRAY[v_from[2]], p_subject => ARRAY[p_subject],
        p_text => ARRAY[p_text], p_html => ARRAY[p_html],
        p_headers => ARRAY[p_headers::text], p_attachments => ARRAY[p_attachments::text],
        p_tags => ARRAY[p_tags::text], p_custom_data => ARRAY[p_custom_data::text], p_traceparent => ARRAY[NULL::text],
        p_recipient_ordinal => array_fill(1, ARRAY[cardinality(v_kinds)]), p_recipient_kind => v_kinds,
        p_recipient_position => v_places, p_recipient_email => v_emails, p_recipient_name => v_names,
        p_idempotency_ttl => p_idempotency_ttl
    );
    IF v_accepted.acceptance = 'conflict' THEN
        RAISE EXCEPTION 'this idempotency key was already used with a different request'
            USING ERRCODE = 'PR002', COLUMN = 'idempotency_key';
    END IF;
    RETURN v_accepted.delivery_id;
END
$$;
