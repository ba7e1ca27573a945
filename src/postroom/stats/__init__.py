"""stats: counts of mail by hour, and by campaign, sender, domain, template or tag.

NAME     stats, figures by campaign, sender, domain, template and tag, by hour
OWNS     the tables `stat_deltas`, `stats_hourly`, `stats_dimension_hours` and `stats_cursor`; the views `email_queue`,
         `send_logs`, `bounce_list` and `unsubscribe_list`, which show the queue, the ledger and the suppressions under
         the names reports use
STATES   a step or a delta is written in the transaction of the counted change, and rolled up once into its hour
CALLED BY  tracking and feedback, in their own statements (`add_stats`); the API, the command line and campaigns
         (`service`, `read_counts`, `read_dimension_counts`); the composition root (`worker`)
CALLS    delivery (`all_steps`, `deliveries`, `send`, `cancel_deliveries`) and events (`event_horizon`,
         `record_audit`)
FAILURES   BadInput

Sending writes no statistics. The rollup follows the committed steps (`all_steps`) in their order, below the oldest open
transaction, and moves its cursor in the transaction that adds the steps to their hours: each step is counted exactly
once, whenever its transaction commits and wherever the process dies. A reader adds hours, deltas and the steps after
the cursor in one statement (`read_counts`, or `read_dimension_counts` for one dimension alone), so a figure includes
the last commit. `postroom stats rebuild` counts the steps in the database again.

Campaign, sender and domain can be combined with each other; template and tag only with time, because the rows of all
combinations would be too many. A mail with several tags counts for each of them, so figures by tag do not add up to the
total. In an hour, at most 200 templates, 200 values of a tag's key, and 1000 tags have figures of their own; further
ones count as `*` and `key=*`, and so do values with an address or of more than 100 characters. A rebuild keeps the
figures by template and tag of a month in which deliveries were deleted, because steps contain neither.

Every mail counts once as accepted and once by its end: sent, refused, suppressed, cancelled or dead_lettered.
A redriven or settled dead letter is subtracted from `dead_lettered` in the hour of that action, and a settled one
counts as sent. The rest of `accepted` is still in the queue. A mail that some recipients accepted and others rejected
later counts by its last attempt. Webhooks are not mail and are not counted.

    recent.py      steps of the last hour by minute, counted in memory
    model.py       metrics, figures, and the rates derived from them
    worker.py      the rollup
    functions/     the rollup, the counts of steps, and the writes to the view `email_queue`

BUGS     `accepted` has no domain and no sender: both would need a lookup of every recipient. Figures have a resolution
         of one hour, in UTC
"""
