-- The language of a person's mail; guesses that are counted alike whether or not an address has an account; logins that
-- were asked for with an address that is taken.

ALTER TABLE accounts
    ADD COLUMN locale varchar(35), -- such as fr or pt-BR; NULL leaves it to POSTROOM_DEFAULT_LOCALE
    ADD CONSTRAINT accounts_locale_form CHECK (locale ~ '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$');

-- Guesses at tokens were counted with the token, and others here: two retentions, which told them apart. The token keeps
-- its own count, because five wrong codes void it; what is answered depends on this table alone.
ALTER TABLE address_limits
    ADD COLUMN token       bigint, -- the newest token that guesses or requests have met; a newer one is guessed anew
    ADD COLUMN day_guesses smallint    NOT NULL DEFAULT 0, -- wrong codes since …
    ADD COLUMN day_from    timestamptz NOT NULL DEFAULT now(); -- … then, at most a day ago

-- A sign-up with a taken address makes no account, and its login would stay free: whoever tried that login again would
-- learn that the address was taken. Hashes, because nobody has these names.
CREATE TABLE reserved_logins (
    login_hash bytea PRIMARY KEY -- sha256 of the login in lower case
);

-- It answers the locale too, and what a function answers cannot be changed in place.
DROP FUNCTION IF EXISTS dequeue_tokens(integer, timestamptz);
