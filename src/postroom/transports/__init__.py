"""transports: the ways out.

NAME     transports, one protocol (`Transport`) and its implementations
GUARD    `guard` judges the addresses of webhooks and of sender accounts: nothing leads into the private network
OWNS     nothing in the database; the capture transport is in postroom.inbox
         smtp     one relay, pooled connections, pipelined
         gmail    a mailbox of Google's, over its API
         ses      Amazon SES, over its API
         webhook  one signed POST, to public addresses only
         stub     tries nothing, ends every delivery as suppressed
         noop     accepts everything and keeps nothing; for measuring the ledger
CALLED BY  delivery's worker, once per attempt
FAILURES   a failed attempt is a `Reply`; exceptions are bugs
"""
