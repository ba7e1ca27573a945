"""stats: how many, of what, where and when.

NAME     stats, figures per campaign, sender and domain, hour by hour
OWNS     the tables `stat_deltas` and `stats_hourly`; the views `email_queue`, `send_logs`, `bounce_list` and
         `unsubscribe_list`, which show the queue, the ledger and the suppressions under the names reports use
STATES   a delta is written in the transaction of what it counts, and folded once into its hour
CALLED BY  triggers on `attempts` and `deliveries`; tracking and feedback, in their own statements (`add_stats`); the
         API, the command line and campaigns (`service`); the composition root (`worker`)
CALLS    delivery (`send`, `cancel_deliveries`) and events (`record_audit`), for writes to the view `email_queue`
FAILURES   BadInput

Nothing is ever counted by reading the log. Whoever finishes attempts adds one row per campaign, sender, domain and
outcome of the statement; the folder adds those to the hour they belong to. A reader adds both tables in one statement,
so a figure is as fresh as the last commit and counts everything once, folded or not.

Every mail counts once as accepted and once for how it ended: sent, refused, suppressed, cancelled or dead_lettered.
A dead letter that is redriven is taken off `dead_lettered` in the hour it is redriven; one that an operator settles
counts as sent in the hour it was given up. What is left of `accepted` is still on its way. A mail to several people
that some took and others refused later counts by its last attempt. Webhooks are not mail and are not counted.

    model.py       metrics, figures, and the rates that follow from them
    worker.py      the rollup
    functions/     the triggers that count, the fold, and what writing to the view `email_queue` does

BUGS     `accepted` has no domain and no sender: neither is known without a look at every recipient. Figures are by
         the hour in UTC: a period begins and ends with one
"""
