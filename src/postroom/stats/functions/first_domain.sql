-- The domain of a delivery's first recipient in lower case, as in `attempts.domain`; empty without a recipient.
CREATE OR REPLACE FUNCTION first_domain(p_delivery_id bigint) RETURNS text
LANGUAGE sql STABLE
RETURN coalesce((
    SELECT lower(split_part(r.email, '@', -1))
    FROM delivery_recipients AS r
    WHERE r.delivery_id = p_delivery_id AND r.kind <> 'reply_to'
    ORDER BY r.kind, r.position
    LIMIT 1
), '');
