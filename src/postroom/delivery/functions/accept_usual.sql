-- Accept one usual mail that Python has checked, by send, and return what accept_deliveries returns for it. A mail that comes
-- alone need not become arrays, which takes PostgreSQL 100 of 280 µs. Raises PR002 if the key belongs to another request.
CREATE OR REPLACE FUNCTION accept_usual(
    p_email           text,
    p_subject         text,
    p_text            text,
    p_html            text,
    p_template        text,
    p_variables       jsonb,
    p_locale          text,
    p_lane            text,
    p_source          text,
    p_idempotency_key text,
    p_idempotency_ttl interval
) RETURNS TABLE (delivery_id bigint, state text, acceptance text)
LANGUAGE plpgsql
AS $$
BEGIN
    delivery_id := send(
        p_email => p_email, p_subject => p_subject, p_text => p_text, p_html => p_html, p_template => p_template,
        p_variables => p_variables, p_locale => p_locale, p_lane => p_lane, p_source => p_source,
        p_idempotency_key => p_idempotency_key, p_idempotency_ttl => p_idempotency_ttl);
    SELECT d.state, CASE d.id WHEN currval('deliveries_id_seq') THEN 'accepted' ELSE 'replayed' END
    INTO state, acceptance
    FROM deliveries AS d
    WHERE d.id = delivery_id;
    RETURN NEXT;
END
$$;
