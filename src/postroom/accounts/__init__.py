"""accounts: rows become account mail.

NAME     accounts, people who sign up, activate, forget passwords and get suspended
OWNS     the tables `accounts`, `tokens`, `jobs`, `busy_jobs`, `address_limits` and `reserved_logins`; the channel
         `token_insert`, on which every burst of new tokens is announced
STATES   an account is provisioned → active → suspended, and back: active if it ever was, provisioned if not.
         A token is live until it is consumed, expires (15 minutes) or is void (five wrong codes). A recovery that is
         used ends the others of its account; another address ends all that was mailed to the old one, and an activation
         that was open goes to the new one. A token that ends early, or is deleted, takes its mail along: what still
         waits to leave is cancelled, with the reason `token_ended`
CALLED BY  the application, in plain SQL; the API and the command line (`service`); the composition root (`worker`)
CALLS    delivery (`accept_batch`, `cancel_deliveries`), with the templates account-activation and account-recovery, in
         the account's `locale` or else in POSTROOM_DEFAULT_LOCALE
FAILURES   TokenNotFound, TokenExpired, TokenUsed, GuessedTooOften, AccountNotFound, LoginTaken, NotProvisioned,
         and to operators EmailTaken; OutputLost and ReaderPaused of a pipe

The application only writes rows. `INSERT INTO accounts` makes the activation token in the same transaction; the
collector turns each token into a delivery in one transaction with its cursor, so a mail is sent if and only if its row
was committed, once. `UPDATE tokens SET consumed_at = …` activates the account. Nothing else has to be called.

A role of the application needs rights on `accounts`, and EXECUTE on `request_token` and `consume_code`: these and the
triggers run as the room's owner, on the database's clock. Whoever writes `tokens` by hand needs rights there, and can
be anybody.

All collectors share one cursor: whoever comes first has a token. An installation that prints tokens for a program of
its own (`postroom tokens collect --format csv`) sets POSTROOM_ACCOUNT_MAIL=off, or its workers mail them. It waits
for a slow reader without a transaction; killed at the wrong moment, it prints what was not yet taken again, and never
skips any.

An address may be written in capitals, with spaces around it, or with a domain in its own script: it is kept as mail
servers know it (xn--…), and found in either form. One that an application keeps in its own script is found by that.

    model.py      accounts, tokens, and what can be said of them
    signature.py  secrets as they leave the house
    letter.py     from a token to its mail
    pipe.py       from a batch of tokens to a line, for another program
    worker.py     the collector
    landing.py    the pages behind the links

HOSTILE INPUTS  signed secrets (compared in constant time before the database is asked), codes (five guesses a token and
         twenty-five a day, counted race-free by address, and for addresses without an account alike), addresses (never
         answered with whether they have an account; `SELECT request_token(…)` is that for applications in SQL), logins
         (one that was asked for is taken, whatever the address), links opened by machines (a page acts only on its
         button). A client that tries many addresses is not limited here: postroom_codes_wrong counts all wrong codes of
         a day. `tokens.code` and `tokens.secret` are stored in clear, for collectors; the content of the mail is
         deleted when its delivery ends, as in all mail of the lane auth (`empty_auth_payload` of delivery)
BUGS     an UPDATE of `tokens` by hand locks the token before its account; to change or delete that account at the same
         moment may end in a deadlock, in which PostgreSQL refuses one of the two (`consume_code` and the API lock the
         account first). A mail that is being accepted at the very moment its token ends still leaves.
         A writer that stays open anywhere in the cluster holds the collector back: postroom_tokens_stalled_seconds,
         `/readyz` and `postroom doctor` say how long, and whose it is. Whoever guesses on purpose keeps a person from
         using codes for a day; the link in the mail works all the same
"""
