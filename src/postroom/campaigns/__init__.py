"""campaigns: one letter to many people.

NAME     campaigns, from an uploaded list to mail in the queue
OWNS     campaigns            the letter, its status and its counters
         campaign_recipients  who is to get it, each once
         campaign_zones       the people of one time zone: when their turn comes, and how far the feeder is
         campaign_fields      the merge fields they bring, and how many have a value
         channel <room>_campaigns: rung when a campaign is started or resumed
STATES   draft → active ⇄ paused; active → completed; active | paused → cancelled. A recipient: waiting → fed or
         suppressed. Enforced by `campaigns_guard`
FILES    lines    CSV and JSON lines → people, and for every line that is none, its number and why
         upload   lines → rows, batch by batch
         letter   a campaign's parts, parsed once and rendered for one person; `letters` does it for workers
         rehearsal  preview, test mail, and `lint`: what a careful sender would want to know before the start
         trial    letters of API callers, checked and rendered in a child process with limits
         mailbag  what lies in the queue, made to agree with the status: held, let go, cancelled
         zones    local time → instant
         worker   the Feeder
CALLED BY  app (Feeder, CampaignRendering), http, cli
CALLS    delivery (`enqueue_deliveries`, `cancel_deliveries`, `shift_deliveries`), feedback (`suppressed_until`), mail
         (render, plaintext), tracking (links), stats (read)
FAILURES   BadInput, CampaignNotFound, CampaignFrozen, CampaignWrongStatus, SecretKeyMissing

One mail per campaign and person. A person is an address regardless of case; a unique index says so, whatever is
uploaded, how often and by how many at once. Each is fed once: their row and their delivery change in one transaction,
under the campaign's row lock. From there on the queue's promise holds: one attempt in flight, and in the bulk lane an
attempt whose end nobody knows becomes a dead letter for a person to judge, never a second mail.

An upload is stored batch by batch, each with its counters in one transaction. When a line ends it (wrong encoding, a
line without end) or the connection dies, what was stored stays and the error says how much; uploading the same file
again is safe, because those who are there already count as duplicates. People may be added until the campaign ends.

The letter is frozen when the campaign starts. Nothing rendered is stored: workers write each mail from the letter and
the person's fields when they send it. A field that the letter names and the person lacks fails that person's mail, with
the field's name in its reason, unless the letter gives a default: `{{ first_name|default("friend") }}`; the lint tells
before. An empty cell is an empty text and prints as nothing; `default("friend", true)` covers that too.

A letter that needs more than 512 MB of memory or 2 s of CPU time is refused by preview, test mail, lint and start: 400,
and the part is named. A start tries the letter with the first five recipients.

A pause acts at once on what waits in the queue: its mail is held by moving its time a thousand years ahead, and let go
with its old time by resuming, so retries keep their place, nothing leaves the ledger and nobody is fed twice. What a
worker has claimed at that moment still leaves; what of it is given back or deferred is held by the next turn of a
feeder. Cancelling ends what waits, in the queue (`cancelled`, reason `campaign_cancelled`) and on the list.

BUGS     Counts of suppressed people add those never fed (kept here) to those the worker found (kept by stats).
         `sent` counts mail that the other side took; `bounced` counts those of them that came back later, and those
         that the other side refused because of the recipient. `failed` counts every other refusal and dead letters.
"""
