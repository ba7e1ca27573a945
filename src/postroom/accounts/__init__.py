"""accounts: rows become account mail.

NAME     accounts, people who sign up, activate, forget passwords and get suspended
OWNS     the tables `accounts`, `tokens`, `jobs`, `busy_jobs` and `address_limits`; the channel `token_insert`
STATES   an account is provisioned → active → suspended, and back: active if it ever was, provisioned if not.
         A token is live until it is consumed, expires (15 minutes) or is void (five wrong codes)
CALLED BY  the application, in plain SQL; the API and the command line (`service`); the composition root (`worker`)
CALLS    delivery (`accept_batch`), with the templates account-activation and account-recovery
FAILURES   TokenNotFound, TokenExpired, TokenUsed, GuessedTooOften, AccountNotFound, LoginTaken, NotProvisioned,
         and to operators EmailTaken

The application only writes rows. `INSERT INTO accounts` makes the activation token in the same transaction; the
collector turns each token into a delivery in one transaction with its cursor, so a mail is sent if and only if its row
was committed, once. `UPDATE tokens SET consumed_at = …` activates the account. Nothing else has to be called.

    model.py      accounts, tokens, and what can be said of them
    signature.py  secrets as they leave the house
    letter.py     from a token to its mail
    pipe.py       from a batch of tokens to a line, for another program
    worker.py     the collector
    landing.py    the pages behind the links

HOSTILE INPUTS  signed secrets (compared in constant time before the database is asked), codes (five guesses a token,
         counted race-free, and for addresses without an account alike), addresses (never answered with whether they
         have an account), links opened by machines (a page acts only on its button)
WEAKNESS   a writer that stays open anywhere in the cluster holds the collector back: postroom_tokens_stalled_seconds
         and `service.measure_stall` say how long, and whose it is
"""
