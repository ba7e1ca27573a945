"""stats: counts of mail per campaign, sender, domain and hour.

NAME     stats, figures per campaign, sender and domain, by hour
OWNS     the tables `stat_deltas` and `stats_hourly`; the views `email_queue`, `send_logs`, `bounce_list` and
         `unsubscribe_list`, which show the queue, the ledger and the suppressions under the names reports use
STATES   a delta is written in the transaction of the counted change, and folded once into its hour
CALLED BY  triggers on `attempts` and `deliveries`; tracking and feedback, in their own statements (`add_stats`); the
         API, the command line and campaigns (`service`); the composition root (`worker`)
CALLS    delivery (`send`, `cancel_deliveries`) and events (`record_audit`), for writes to the view `email_queue`
FAILURES   BadInput

Figures are never computed from the ledger. A statement that finishes attempts adds one delta per campaign, sender,
domain and outcome; the rollup adds deltas to their hours. A reader adds both tables in one statement, so a figure
includes the last commit and counts every mail once, folded or not.

Every mail counts once as accepted and once by its end: sent, refused, suppressed, cancelled or dead_lettered.
A redriven dead letter is subtracted from `dead_lettered` in the hour of the redrive; a settled one counts as sent in
the hour it became a dead letter. The rest of `accepted` is still in the queue. A mail that some recipients accepted and
others rejected later counts by its last attempt. Webhooks are not mail and are not counted.

    model.py       metrics, figures, and the rates derived from them
    worker.py      the rollup
    functions/     the triggers that count, the fold, and the writes to the view `email_queue`

BUGS     `accepted` has no domain and no sender: both would need a lookup of every recipient. Figures have a resolution
         of one hour, in UTC
"""
