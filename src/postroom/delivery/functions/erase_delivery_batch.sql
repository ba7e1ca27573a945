-- One bounded step of erasing a person from deliveries of other recipients, in the order of their ids. Keys and data
-- get the pseudonym. Mail from the person loses its sender, and an idempotency key that contains the address is deleted
-- with its fingerprint. Bodies of webhooks are searched; mail to others is not, because it is the content of its
-- author. Returns the last delivery checked, NULL at the end, and the number of changed ones.
CREATE OR REPLACE FUNCTION erase_delivery_batch(
    p_address text, p_pseudonym text, p_after_id bigint, p_limit integer, OUT last_id bigint, OUT touched bigint
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    SELECT max(d.id), coalesce(array_agg(d.id) FILTER (WHERE
        strpos(lower(concat_ws(' ', d.source, d.idempotency_key, d.tags, d.custom_data, d.detail, l.detail)), p_address) > 0
        OR lower(p.from_email) = p_address
        OR d.channel = 'webhook'
            AND strpos(lower(concat_ws(' ', p.subject, p.text_body, p.html_body, p.variables, p.headers)), p_address) > 0
    ), '{}')
    INTO last_id, v_ids
    FROM (SELECT * FROM deliveries WHERE id > p_after_id ORDER BY id LIMIT p_limit) AS d
    LEFT JOIN delivery_payloads AS p ON p.delivery_id = d.id
    LEFT JOIN dead_letters AS l ON l.delivery_id = d.id;
    PERFORM FROM deliveries WHERE id = ANY(v_ids) ORDER BY id FOR UPDATE;

    UPDATE deliveries AS d
    SET source = erase_key(d.source, p_address, p_pseudonym),
        tags = erase_tags(d.tags, p_address, p_pseudonym),
        custom_data = erase_text(d.custom_data::text, p_address, p_pseudonym)::jsonb,
        detail = erase_text(d.detail, p_address, p_pseudonym),
        idempotency_key = CASE WHEN named.by_key THEN NULL ELSE d.idempotency_key END,
        request_fingerprint = CASE WHEN named.by_key THEN NULL ELSE d.request_fingerprint END,
        idempotency_expires_at = CASE WHEN named.by_key THEN NULL ELSE d.idempotency_expires_at END
    FROM (
        SELECT id, erase_key(idempotency_key, p_address, p_pseudonym) IS DISTINCT FROM idempotency_key AS by_key
        FROM deliveries
        WHERE id = ANY(v_ids)
    ) AS named
    WHERE d.id = named.id;
    UPDATE delivery_payloads AS p SET from_email = NULL, from_name = NULL
    WHERE p.delivery_id = ANY(v_ids) AND lower(p.from_email) = p_address;
    UPDATE delivery_payloads AS p
    SET subject = erase_text(p.subject, p_address, p_pseudonym),
        text_body = erase_text(p.text_body, p_address, p_pseudonym),
        html_body = erase_text(p.html_body, p_address, p_pseudonym),
        variables = erase_text(p.variables::text, p_address, p_pseudonym)::jsonb,
        headers = erase_text(p.headers::text, p_address, p_pseudonym)::jsonb
    FROM deliveries AS d
    WHERE p.delivery_id = ANY(v_ids) AND d.id = p.delivery_id AND d.channel = 'webhook';
    UPDATE dead_letters AS l SET detail = erase_text(l.detail, p_address, p_pseudonym)
    WHERE l.delivery_id = ANY(v_ids) AND strpos(lower(l.detail), p_address) > 0;
    touched := cardinality(v_ids);
END
$$;
