"""accounts: rows become account mail.

NAME     accounts, people who sign up, activate, reset passwords and are suspended
OWNS     the tables `accounts`, `tokens`, `jobs`, `busy_jobs`, `address_limits` and `reserved_logins`; the channel
         `token_insert`, which notifies listeners of each burst of new tokens
STATES   an account is provisioned → active → suspended. Unsuspending makes it active again if it was ever activated,
         otherwise provisioned. A token is live until it is consumed, expires (15 minutes) or is void (five wrong
         codes). Using a recovery token expires the other recovery tokens of the account. Changing the address expires
         all tokens mailed to the old one; an open activation is mailed to the new one. When a token is expired early or
         deleted, its queued mail is cancelled with the reason `token_ended`
CALLED BY  the application, in plain SQL; the API and the command line (`service`); the composition root (`worker`)
CALLS    delivery (`accept_batch`, `cancel_deliveries`), with the templates account-activation and account-recovery, in
         the account's `locale` or else in POSTROOM_DEFAULT_LOCALE
FAILURES   TokenNotFound, TokenExpired, TokenUsed, GuessedTooOften, AccountNotFound, LoginTaken, NotProvisioned,
         for operators also EmailTaken; for the pipe OutputLost and ReaderPaused

The application only writes rows. `INSERT INTO accounts` creates the activation token in the same transaction. The
collector turns each token into a delivery and advances its cursor in one transaction, so a mail is sent exactly once,
and only if its row was committed. `UPDATE tokens SET consumed_at = …` activates the account. No other call is needed.

The role of an application needs rights on `accounts`, and EXECUTE on `request_token` and `consume_code`. These
functions and the triggers run as the room's owner and use the database's clock. Writing `tokens` directly needs rights
on `tokens`, which allow a role to act for any account.

All collectors share one cursor; the first to lock it takes the tokens. An installation that prints tokens for its own
program (`postroom tokens collect --format csv`) sets POSTROOM_ACCOUNT_MAIL=off, otherwise its workers mail them. The
command waits for a slow reader outside a transaction. If it is killed between printing and commit, it prints those
tokens again; it never skips one.

An address may have capitals, surrounding spaces, or an internationalized domain. It is stored with the ASCII form of
the domain (xn--…) and found in both forms. An address that an application stores in its Unicode form is found by that.

    model.py      accounts and tokens
    signature.py  signed secrets of links
    letter.py     the mail of a token
    pipe.py       batches of tokens as lines for another program
    worker.py     the collector
    landing.py    the pages that links open

HOSTILE INPUTS  signed secrets (compared in constant time before any query), codes (five guesses per token and
         twenty-five per day, counted per address without a race, also for addresses without an account), addresses
         (no response reveals whether an address has an account; in SQL use `SELECT request_token(…)`), logins (a
         requested login is taken, whether or not its address was free), links opened by scanners (a page acts only
         on its button). Clients that try many addresses are not limited here: postroom_codes_wrong counts all wrong
         codes of a day. `tokens.code` and `tokens.secret` are stored in clear text, for collectors; the content of
         the mail is deleted when its delivery ends, as for all mail of the auth lane (`empty_auth_payload` of delivery)
BUGS     a direct UPDATE of `tokens` locks the token before its account. Changing or deleting that account at the same
         time may deadlock, and PostgreSQL aborts one of the two (`consume_code` and the API lock the account first).
         A mail that is being accepted while its token is expired is still sent. A long write transaction anywhere in
         the cluster delays the collector: postroom_tokens_stalled_seconds, `/readyz` and `postroom doctor` show for
         how long, and the pid. An attacker who guesses codes on purpose blocks the codes of that address for a day;
         the link in the mail keeps working
"""
