-- The domain of a delivery's first recipient in lower case, as in `attempts.domain`; empty without a delivery.
CREATE OR REPLACE FUNCTION first_domain(p_delivery_id bigint) RETURNS text
LANGUAGE sql STABLE
RETURN coalesce((SELECT lower(split_part(recipient_email, '@', -1)) FROM deliveries WHERE id = p_delivery_id), '');
