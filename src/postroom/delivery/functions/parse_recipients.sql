-- The recipients of a mail of send as arrays, in the order of kind and position. Raises PR001 naming an invalid one.
CREATE OR REPLACE FUNCTION parse_recipients(p_to text[], p_cc text[], p_bcc text[], p_reply_to text[])
RETURNS TABLE (kinds recipient_kind[], positions integer[], emails text[], names text[])
LANGUAGE sql STABLE
AS $$
    SELECT array_agg(kind ORDER BY kind, place), array_agg((place - 1)::integer ORDER BY kind, place),
        array_agg(parsed[1] ORDER BY kind, place), array_agg(parsed[2] ORDER BY kind, place)
    FROM (
        SELECT kind, place, CASE WHEN is_plain_address(address) THEN ARRAY[address, NULL]
            ELSE parse_address(kind || '[' || place - 1 || ']', coalesce(address, '')) END AS parsed
        FROM (VALUES ('to'::recipient_kind, p_to), ('cc', p_cc), ('bcc', p_bcc), ('reply_to', p_reply_to))
                AS list(kind, addresses),
            unnest(addresses) WITH ORDINALITY AS r(address, place)
    ) AS recipient
$$;
