-- The fields of a request that most mail leaves empty, as text for its fingerprint; p_others: its recipients after the first. An
-- empty field is one that is not given, and so is a null in an attachment: Python and SQL write them differently.
-- The planner inlines the function.
CREATE OR REPLACE FUNCTION rest_of_request(
    p_channel     delivery_channel,
    p_send_at     timestamptz,
    p_from_email  text,
    p_from_name   text,
    p_headers     jsonb,
    p_attachments jsonb,
    p_tags        jsonb,
    p_custom_data jsonb,
    p_name        text,
    p_others      text
) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_channel <> 'email'
            OR num_nonnulls(p_send_at, p_from_email, nullif(p_headers, '{}'), nullif(p_attachments, '[]'), nullif(p_tags, '{}'),
                nullif(p_custom_data, '{}'), p_name, p_others) > 0
        THEN ROW(p_channel, extract(epoch FROM p_send_at), p_from_email, p_from_name, nullif(p_headers, '{}'),
            jsonb_strip_nulls(nullif(p_attachments, '[]')), nullif(p_tags, '{}'), nullif(p_custom_data, '{}'), p_name,
            p_others)::text END
$$;
