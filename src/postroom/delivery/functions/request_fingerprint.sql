-- The hash of everything in a request that makes it the same request; see accept_delivery and accept_deliveries. The
-- trace is not part of it. Recipients are in the order of kind and position. Bodies are appended unquoted, with their
-- length: quoting them inside the row costs more than hashing. Half of the hash is stored: it is compared with that of one
-- other request, and a delivery keeps 32 bytes less. The planner inlines the function.
CREATE OR REPLACE FUNCTION request_fingerprint(
    p_channel     delivery_channel,
    p_lane        delivery_lane,
    p_send_at     timestamptz,
    p_template_id text,
    p_locale      text,
    p_variables   jsonb,
    p_from_email  text,
    p_from_name   text,
    p_subject     text,
    p_text        text,
    p_html        text,
    p_headers     jsonb,
    p_attachments jsonb,
    p_tags        jsonb,
    p_custom_data jsonb,
    p_kinds       recipient_kind[],
    p_emails      text[],
    p_names       text[]
) RETURNS bytea
LANGUAGE sql STABLE
AS $$
    SELECT substr(sha256(convert_to(ROW(
        p_channel, p_lane, extract(epoch FROM p_send_at), p_template_id, p_locale, p_variables, p_from_email, p_from_name,
        p_subject, p_headers, p_attachments, p_tags, p_custom_data, p_kinds, p_emails, p_names,
        octet_length(p_text), octet_length(p_html)
    )::text || coalesce(p_text, '') || coalesce(p_html, ''), 'UTF8')), 1, 16)
$$;
