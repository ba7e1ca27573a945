-- Addresses that no mail can have are refused where they are written: two at-signs, brackets and commas of a header, a
-- domain with an empty part. Not asked of rows that are there already, which must not stop an upgrade; one of those is
-- refused when it is next changed.
ALTER TABLE accounts DROP CONSTRAINT accounts_email_form;
ALTER TABLE accounts ADD CONSTRAINT accounts_email_form CHECK (
    email ~ '^[^\s@<>(),;:\\"\[\]\x01-\x1f\x7f]+@[^\s@<>(),;:\\"\[\].\x01-\x1f\x7f]+(\.[^\s@<>(),;:\\"\[\].\x01-\x1f\x7f]+)*$'
) NOT VALID;

-- forget_tokens: however many tokens there are that must stay. Tokens are written in the order in which they expire, so a
-- summary of pages is enough, and costs a sign-up nothing.
CREATE INDEX tokens_expires_idx ON tokens USING brin (expires_at) WITH (pages_per_range = 32);

-- An address may be written in two ways, and parameters cannot be added in place.
DROP FUNCTION IF EXISTS count_request(text, token_action, timestamptz);
DROP FUNCTION IF EXISTS request_token(text, token_action, timestamptz);
DROP FUNCTION IF EXISTS consume_code(text, token_action, text, timestamptz);
