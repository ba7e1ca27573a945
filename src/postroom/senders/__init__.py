"""senders: the mailboxes that mail leaves through.

NAME       senders, `sender_accounts` and the enforcement of their limits
OWNS       sender_accounts, sender_health, destination_domains
STATES     active ⇄ paused (by a person or by poor health; only a person resumes it) · suspended (login rejected)
           warming_up (active with a growing limit) · paused_limit_reached (until the next UTC day, then as before)
FILES      model            an account, and the rules that pause it
           health           the effect of a reply on the account
           pace             the delay between starts, by the monotonic clock of the process that holds the account
           accounts_in_use  accounts, transports and start times for a worker
           record           results → counters, health, pauses, suspensions
           forecast         the time that a number of mails needs
           identity         From and Reply-To of a mail sent through an account
           seal, kms        encryption of secrets, with our key or one of AWS KMS
           factory          account and credentials → transport
           trial            connect, log in, send a mail to itself, report each step
CALLED BY  delivery: the claim reserves accounts (functions/reserve_senders.sql), the worker uses them, results
           are recorded; feedback: later bounces (functions/count_returned.sql)
ROUTING    while an account exists that no person has paused, mail leaves through accounts, and waits if none has
           quota; otherwise through the relay of the settings. Webhooks never wait for an account.
PROMISES   `daily_sent` never exceeds the day's limit, with any number of workers: it is counted in the claim's own
           transaction. Two starts of one account are at least `send_delay_ms` apart across all processes.
SECURITY   `transports.guard` checks the servers of accounts, as it checks webhooks: public addresses only, unless
           POSTROOM_SENDERS_ALLOW_PRIVATE. A change of the server or user of a secret requires the secret again.
FAILURES   a rejected login suspends the account at once; a throttled account pauses for as long as the reply asks. The
           mail is due at once for another account, loses no attempt and returns its quota: three times at most, and
           never beyond its age limit. A mail that a second account is throttled for is at fault itself: it follows
           its retry schedule and no account pauses. A server that cannot be reached changes nothing: the network of the
           worker may be dead; the worker itself pauses (`delivery.slots`). An edited note closes no connection; after a
           change of server, user or secret, mail that waits for a connection still leaves through the old one.
"""
