"""transports: the protocols that mail and webhooks leave through.

NAME     transports, one protocol (`Transport`) and its implementations
GUARD    `guard` checks the addresses of webhooks and sender accounts: no request into the private network
OWNS     nothing in the database; the capture transport is in postroom.inbox
         smtp     one relay, pooled connections, pipelined
         gmail    a Gmail mailbox, over its API
         ses      Amazon SES, over its API
         webhook  one signed POST, to public addresses only
         stub     sends nothing, ends every delivery as suppressed
         noop     accepts everything and keeps nothing; for measuring the ledger
CALLED BY  delivery's worker, once per attempt
FAILURES   a failed attempt is a `Reply`; exceptions are bugs
"""
