-- Tokens are forgotten in the order of their ids, a bounded step at a time; see functions/forget_tokens.sql. The summary of
-- pages by expiry helped only until freed pages were used again: a page range keeps its oldest expiry for ever, and in the
-- end every look for old tokens read the whole table.
DROP INDEX tokens_expires_idx;

-- Whoever may call a function that runs as the owner must not choose its clock, or under which spelling it counts: limits
-- would be theirs. Those who own the tables have request_token_at and consume_code_at.
DROP FUNCTION IF EXISTS request_token(text, token_action, timestamptz, text);
DROP FUNCTION IF EXISTS consume_code(text, token_action, text, timestamptz, text);
