-- The hash of everything in a request that makes it the same request; see send and accept_deliveries. The trace is not part of
-- it. p_rest: as text, the fields that most mail leaves empty; NULL for such mail, so that PostgreSQL prepares few values. 64 bits
-- are enough: the hash is compared with that of one other request, by the same source with the same key. SHA-256 of a 4 KB
-- body takes ten times as long, one text of all fields 4 µs more. Variables are hashed as text, because jsonb regards 1.0 and 1
-- as equal; Python passes no empty ones. The planner inlines the function.
CREATE OR REPLACE FUNCTION request_fingerprint(
    p_lane        text,
    p_template_id text,
    p_locale      text,
    p_variables   jsonb,
    p_subject     text,
    p_text        text,
    p_html        text,
    p_email       text,
    p_rest        text
) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hash_array_extended(
        ARRAY[p_lane, p_template_id, p_locale, nullif(p_variables::text, '{}'), p_subject, p_text, p_html, p_email, p_rest], 0)
$$;
