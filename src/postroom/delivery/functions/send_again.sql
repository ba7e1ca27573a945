-- Accept a mail that send has checked and could not simply insert: a recipient may be suppressed, or its key is known.
CREATE OR REPLACE FUNCTION send_again(
    p_subject         text,
    p_text            text,
    p_html            text,
    p_template        text,
    p_variables       jsonb,
    p_locale          text,
    p_lane            text,
    p_source          text,
    p_idempotency_key text,
    p_send_at         timestamptz,
    p_expires_at      timestamptz,
    p_from            text[],
    p_headers         jsonb,
    p_attachments     jsonb,
    p_tags            jsonb,
    p_custom_data     jsonb,
    p_idempotency_ttl interval,
    p_max_retries     integer,
    p_give_up_after   interval,
    p_traceparent     text,
    p_email           text,
    p_name            text,
    p_kinds           text[],
    p_positions       integer[],
    p_others          text[],
    p_names           text[]
) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    v_id         bigint;
    v_acceptance text;
BEGIN
    SELECT delivery_ids[1], acceptances[1]
    INTO v_id, v_acceptance
    FROM accept_deliveries(
        '{email}', ARRAY[p_lane], ARRAY[p_source], CASE WHEN p_idempotency_key IS NOT NULL THEN ARRAY[p_idempotency_key] END,
        ARRAY[p_send_at], ARRAY[p_expires_at], ARRAY[CASE p_lane WHEN 'auth' THEN 'auth' ELSE 'generic' END],
        ARRAY[p_max_retries], ARRAY[p_give_up_after], ARRAY[p_template], ARRAY[p_locale], ARRAY[p_variables::text],
        p_from[1:1], p_from[2:2], ARRAY[p_subject], ARRAY[p_text], ARRAY[p_html], ARRAY[p_headers::text],
        ARRAY[p_attachments::text], ARRAY[p_tags::text], ARRAY[p_custom_data::text], ARRAY[p_traceparent],
        ARRAY[p_email], ARRAY[p_name], CASE WHEN p_others IS NOT NULL THEN array_fill(1, ARRAY[cardinality(p_others)]) END,
        p_kinds, p_positions, p_others, p_names, p_idempotency_ttl
    );
    IF v_acceptance = 'conflict' THEN
        RAISE EXCEPTION 'this idempotency key was already used with a different request'
            USING ERRCODE = 'PR002', COLUMN = 'idempotency_key';
    END IF;
    RETURN v_id;
END
$$;
