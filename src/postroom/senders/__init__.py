"""senders: the mailboxes that mail leaves through.

NAME       senders, `sender_accounts` and what keeps them within their limits
OWNS       sender_accounts, sender_health, destination_domains
STATES     active ⇄ paused (by a person or by its own health; only a person brings it back) · suspended (login refused)
           warming_up (active with a limit that grows) · paused_limit_reached (until the next UTC day, then what it was)
FILES      model      an account, and when its results say that it must rest
           health     what a reply says about the account
           pace       start to start, by the monotonic clock of the process that holds the account
           desk       accounts, ways out and turns for a worker
           record     results → counters, health, rests, suspensions
           forecast   how long so many mails take through them
           identity   who a mail is from when an account carries it
           seal, kms  secrets at rest, under our key or one of AWS KMS
           factory    account and credentials → transport
           trial      connect, log in, send a mail to itself, and say how far it got
CALLED BY  delivery: the claim reserves (functions/reserve_senders.sql), the worker asks the desk, results are recorded;
           feedback: later bounces (functions/count_returned.sql)
ROUTING    while there is an account that no person has paused, mail leaves through accounts, and waits when none has
           quota; otherwise through the relay of the settings. Webhooks never wait for a mailbox.
PROMISES   `daily_sent` never exceeds the day's limit, with any number of workers: it is counted in the claim's own
           transaction. Two starts of one account are at least `send_delay_ms` apart, wherever they happen.
SECURITY   the servers of accounts are judged by `transports.guard`, as webhooks are: public addresses only, unless
           POSTROOM_SENDERS_ALLOW_PRIVATE. A change of where or as whom a secret is used needs the secret again.
FAILURES   a refused login suspends the account at once; a throttled account rests for as long as the reply asks. The
           mail is due at once for another account, loses no attempt and returns its quota: three times at most, and
           never beyond its age limit. A mail for which a second account is throttled is at fault itself: it follows
           its retry schedule and no account rests. A note that is edited closes no connection; after a change of
           server, user or secret, mail that waits for a connection still leaves through the old one.
"""
