"""delivery: the queue and its ledger.

NAME     delivery, from an accepted request to its end
OWNS     deliveries           one message to one set of recipients over one channel
         due_deliveries       those that wait, apart from their records (functions/follow_delivery.sql)
         unsent_deliveries    those that ended without being sent, for listings (functions/list_unsent.sql)
         other_recipients     its recipients after the first; the view delivery_recipients has all of them
         delivery_payloads    its content
         attempts             one row per finished attempt, a partition per month
         delivery_steps       the log of committed steps, a partition per month (functions/assign_step_place.sql)
         all_steps            the same with the steps accepted, which `deliveries` has: facts and statistics read it
         dead_letters         deliveries given up, and the reason
         mass_actions         actions on all deliveries of a filter, done in steps (`mass`)
         claims, workers      leases and their holders
         recorded_facts       which types of facts readers of events see, and since when
         deferred_deliveries  mail that was attempted and has not ended (functions/list_deferred.sql)
         ways_out             the relay and the sender accounts, and whether they answer (`ways_out`)
         admin_notices        when each kind of notice to the administrator was last sent (`notices`)
         channel <room>_deliveries: rung for sleeping workers
STATES   queued → rendered → sending → sent | failed | dead_letter | cancelled | suppressed; drawn in
         docs/architecture.md, listed in `model.TRANSITIONS`, enforced by `deliveries_guard`. A delivery waits as
         rendered if a message of its template was composed before, otherwise as queued (functions/released_state.sql)
STEPS    check → accept (functions/send.sql, accept_deliveries.sql) → claim → start → attempt → complete (queries.sql).
         A request is checked once: the service takes only a `CheckedRequest`; `postroom.send` passes mail of the usual
         form directly to SQL `send`, which checks it again for roles of applications (`usual`), and the API passes it
         so if it comes alone (functions/accept_usual.sql). An attempt: the `Writer` of the channel
         makes envelope and content, `dispatch` serves the transports, `feed` gives one connection mail after mail,
         `decision` decides, `ledger` writes. A delivery of which no message can be made ends without an attempt
         (`fail_unwritable`). Recover, expire and retention in `maintenance`; the meaning of a reply in `outcome`, the
         time of the next attempt in `retry` (the age counts from the first attempt, by the database's clock; a request
         may set `max_retries` and `give_up_after`). Mail of a paused or cancelled campaign is never claimed
         (functions/lock_due_mail.sql). functions/waits_for.sql says why a delivery waits; nothing stores it
LIMITS   for each lane and process: two chunks of mail that are not in the ledger yet, and as many webhooks (`lane`);
         32 MB of content, read when a chunk starts; for each transport its connections (`slots`). A mailbox whose
         server does not answer is left out of claims; webhooks to such hosts wait (transports.webhook.host_backoff).
         Mail beyond the rate or the quota of the room waits (`RoomHold`)
LATEST   a suppression counts until the chunk starts; an expiry until the transport has a connection, or, if the
         envelope travelled behind another mail, until its own content leaves
RIGHTS   SQL `send(…)` runs as the owner of the room and binds the source to the caller's role (`bind_source`); an
         application needs EXECUTE on it and nothing else. `accept_deliveries` runs with the rights of its caller
HOSTILE INPUTS  all that an application passes to `send(…)`: `check` and functions/check_send*.sql hold the same rules,
         which one table of cases tests. A row that cannot be read all the same fails alone (`rows`)
CALLED BY  mail (rendering), every intake, http, cli, and applications through `postroom.send` and SQL `send(…)`; in SQL
         campaigns, accounts, schedule and stats: `enqueue_`, `cancel_`, `shift_` and `withdraw_deliveries`
CALLS    a writer for each channel and a transport for each channel and lane, as given (`Writers`, `Routes`);
         feedback (`suppressed_until`), when accepting and before sending
FAILURES   `BadInput`, `IdempotencyConflict`, `DeliveryNotFound`, `DeadLetterNotFound`, `MassActionNotFound`,
         `WrongState`, `BodyGone`, `CampaignCancelled`, `DeliveryExpired`. A failed send is a value. A lost claim
         changes nothing and is counted. A worker that cannot write results keeps them, stops sending, and retries
         until the database takes them (`ledger`). A bug in a loop of the worker is reported and retried; one around an
         attempt makes it ambiguous.
BUGS     A long transaction anywhere in the cluster keeps dead rows alive and slowly makes claiming dearer: `postroom
         doctor` names it.
"""
