"""outbox: publish every committed event to its subscribers.

NAME     outbox, from the event store to subscribers: at least once, in order, one leader per topic and publisher
OWNS     outbox_topics           the conditions of a topic: types, tag keys, exact tags; combined by AND
         outbox_topic_progress   the progress, the leader and the last error of each publisher of a topic
         outbox_lag              the lag of each publisher, once a minute, for a day
         webhook_endpoints       the URLs of webhooks, and the sealed secrets that sign them (`webhooks`)
         outbox_mail_rules       the rules that turn events into mails (`mails`)
         channel <room>_outbox: notified when an operator changes something
PUBLISHERS   webhook   a delivery for each event and endpoint, through the delivery queue (local)
         intake    a mail for each event that matches a rule (local)
         redis     XADD to the stream `<prefix>:<topic>`, bounded
         nats      JetStream subject `<prefix>.<topic>`, a batch stored as one, de-duplicated by `Nats-Msg-Id`
         log       one structured line for each event
         redis and nats carry Postroom's JSON or CloudEvents 1.0 (`cloudevents`), set by POSTROOM_OUTBOX_FORMAT; a
         webhook endpoint has its own `format`
         view:…    read models, maintained by `views`
         and your own, in ten lines: see `publisher`; pass it to `run_outbox(room, stop=…, more=[Printer()])`
ORDER    (transaction_id, position), below the oldest open transaction. Nothing is skipped. One open transaction
         delays every publisher; the listing names it.
FACTS    about deliveries are scanned in `all_steps`, merged with events in this order, for topics that may contain
         them; all other topics leave the log alone. The worker's results and the rollup of statistics wake publishers.
         Accepting a mail does not: the acceptance of mail that is due later is published within two seconds.
ONCE     Local publishers commit their effect together with the progress: exactly once. The others repeat messages
         of the last batch after a crash, with the same id: `<source>:<epoch>:<position>`.
STATES   ACTIVE → PAUSED by an operator; → FAILED after consecutive errors; back by `resume`, which clears the errors.
         A failed batch is retried one event at a time: valid events are published, and the invalid one is known
         for `skip`. An unreadable event is an error at its position; a relay that crashes counts as an error too,
         with the same back-off. Neither `skip` nor `reset` passes an open transaction; a view is rebuilt, not reset.
TOPICS   A change of a topic's conditions applies to all its publishers at once; adding a publisher changes nothing
         else. Removing a topic or publisher that webhook endpoints, rules or a view use needs `force`.
LEADERS  A leader holds a session lock on a dedicated connection. Instances divide the pairs evenly among those that
         have the publisher. A killed process or a lost connection frees its locks at once; if a leader holds its lock
         but sends no heartbeat, other instances terminate its session.
CALLED BY  app (`run_outbox`), http, cli
CALLS    events (to follow), delivery (to accept), transports.webhook (to sign)
FAILURES   `TopicNotFound`, `ProgressNotFound`, `EndpointNotFound`, `RuleNotFound`, `TopicExists`, `TopicNeeded`,
         `NotNext`, `BadInput`; `wait_for` of a view raises `ViewFailed`. Publishers raise `PublishFailed`.
"""
