-- The hash of everything in a request that makes it the same request; see accept_delivery and accept_deliveries. The
-- trace is not part of it. Recipients are in the order of kind and position. Bodies are appended unquoted, with their
-- length: quoting them inside the row costs more than hashing. 64 bits are enough: the hash is compared with that of one
-- other request, by the same source with the same key. SHA-256 of a 4 KB body takes ten times as long. The function is
-- that of hash partitions, which PostgreSQL keeps the same in every version. The planner inlines the function.
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
) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended((ROW(
        p_channel, p_lane, extract(epoch FROM p_send_at), p_template_id, p_locale, p_variables, p_from_email, p_from_name,
        p_subject, p_headers, p_attachments, p_tags, p_custom_data, p_kinds, p_emails, p_names,
        octet_length(p_text), octet_length(p_html)
    )::text || coalesce(p_text, '') || coalesce(p_html, '')) COLLATE "C", 0)
$$;
