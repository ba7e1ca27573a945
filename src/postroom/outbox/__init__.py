"""outbox: every committed fact to its subscribers.

NAME     outbox, from the event store to the world: at least once, in order, one leader per topic and publisher
OWNS     outbox_topics           what is published under a name: types, tag keys, exact tags; combined by AND
         outbox_topic_progress   how far each publisher of a topic is, who leads it, what went wrong
         webhook_endpoints       where webhooks go, and the sealed secrets that sign them (`webhooks`)
         outbox_mail_rules       which events become mails (`mails`)
         channel <room>_outbox: rung when a person changes something
PUBLISHERS   webhook   a delivery for each event and endpoint, through the one queue (local)
         intake    a mail for each event that a rule names (local)
         redis     XADD to the stream `<prefix>:<topic>`, bounded
         nats      JetStream subject `<prefix>.<topic>`, a batch stored as one, de-duplicated by `Nats-Msg-Id`
         log       one structured line for each event
         redis and nats carry our own JSON, or CloudEvents 1.0 (`cloudevents`) by POSTROOM_OUTBOX_FORMAT; an endpoint
         of webhook chooses by its `format`
         view:…    read models, kept by `views`
         and your own, in ten lines: see `publisher`, and hand it to `run_outbox(room, stop=…, more=[Printer()])`
ORDER    (transaction_id, position), below the oldest open transaction. Nothing is skipped. One open transaction holds
         up everybody; the listing names it.
ONCE     Local publishers commit their effect with the progress: exactly once. The others repeat, after a crash only,
         messages of the last batch, with the id they had: `<source>:<epoch>:<position>`.
STATES   ACTIVE → PAUSED by a person; → FAILED after errors in a row; back by `resume`, which forgets them.
         A failing batch is tried again one event at a time, so that what is good gets out and `skip` knows what is not.
         An event that cannot be read is an error at its position; a relay that dies is one too, and is left alone for
         as long. Neither `skip` nor `reset` goes past an open transaction, and a view is not reset but rebuilt.
TOPICS   What a topic is about is changed for all its publishers at once; to add one changes nothing else. A topic, or a
         publisher, that webhook endpoints, rules or a view depend on goes only by force.
LEADERS  A session lock on a held connection. Instances share the pairs evenly among those that have the publisher. A
         killed process or a cut connection frees its locks at once; a leader that is silent while its lock is held
         has its session ended by the others.
CALLED BY  app (`run_outbox`), http, cli
CALLS    events (to follow), delivery (to accept), transports.webhook (to sign)
FAILURES   `TopicNotFound`, `ProgressNotFound`, `EndpointNotFound`, `RuleNotFound`, `TopicExists`, `TopicNeeded`,
         `NotNext`, `BadInput`; `ViewFailed` to who waits for one. `PublishFailed` is for publishers to raise.
"""
