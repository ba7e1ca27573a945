"""campaigns: one letter to many people.

NAME     campaigns, from an uploaded list to mail in the queue
OWNS     campaigns            the letter, its status and its counters
         campaign_recipients  the recipients, each once
         campaign_zones       the recipients of one time zone: due time and feeding position
         campaign_fields      the merge fields of the recipients, and how many have a value
         channel <room>_campaigns: notified when a campaign is started or resumed
STATES   draft → active ⇄ paused; active → completed; active | paused → cancelled;
         active | paused → draft while no mail was queued. A recipient: waiting → fed or
         suppressed. Enforced by `campaigns_guard`
FILES    recipients_file  CSV and JSON lines → recipients; rejected lines with number and reason
         upload      recipients → rows, batch by batch
         template    a campaign's letter, parsed once and rendered per recipient
         rendering   loads and renders letters for workers
         preview     preview, test mail, and `lint`: warnings before the start
         report      counts by hour and domain, and the result for each recipient
         trial       letters of API callers, checked and rendered in a child process with limits
         queue_sync  holds, releases or cancels queued mail according to the status
         zones       local time → instant
         worker      the Feeder
CALLED BY  app (Feeder, CampaignRendering), http, cli
CALLS    delivery (`enqueue_deliveries`, `cancel_deliveries`, `shift_deliveries`), feedback (`suppressed_until`), mail
         (render, plaintext), tracking (links), stats (read)
FAILURES   BadInput, CampaignNotFound, CampaignFrozen, CampaignWrongStatus, SecretKeyMissing,
           SettingsMissing

A person gets one mail per campaign. A person is an address regardless of case; a unique index enforces this for
repeated and concurrent uploads. Each recipient is queued once: the recipient's row and the delivery change in one
transaction, under the campaign's row lock. Then the guarantee of the queue holds: one attempt in flight. An ambiguous
attempt in the bulk lane becomes a dead letter for an operator to decide, never a second mail.

An upload is stored batch by batch, each with its counters in one transaction. If an unreadable line (wrong encoding,
no line end) or a lost connection ends the upload, stored batches stay and the error gives their number. Uploading the
same file again is safe: stored recipients count as duplicates. Recipients may be added until the campaign ends.

The letter is frozen when the campaign starts. Rendered mail is not stored: workers render each mail from the letter
and the recipient's fields when they send it. If a recipient lacks a field that the letter uses, that mail fails with
the field's name in its reason, unless the letter gives a default: `{{ first_name|default("friend") }}`; the lint
warns about this. An empty cell is an empty string and prints nothing; `default("friend", true)` covers that too.

A letter that needs more than 512 MB of memory or 2 s of CPU time is rejected by preview, test mail, lint and start
with status 400 and the name of the part. A start tries the letter with the first five recipients.

A pause takes effect on waiting mail at once: its due time moves a thousand years ahead, and a resume restores it.
Retries keep their order, nothing leaves the ledger, and no recipient is queued twice. Mail that a worker has claimed
is still sent; if it is released or deferred, the next pass of a feeder holds it. Cancelling ends waiting mail in the
queue (`cancelled`, reason `campaign_cancelled`) and on the list.

BUGS     Counts of suppressed recipients add those never queued (kept here) to those the worker found (kept by stats).
         `sent` counts mail that the receiving server accepted; `bounced` counts those that came back later, and mail
         rejected because of the recipient. `failed` counts every other rejection and dead letters.
"""
