"""outbox.webhooks: events posted to registered endpoints, signed with each endpoint's own secret.

NAME       `WebhookPublisher`, from an event to a delivery for each endpoint; `WebhookWriter`, from a claimed delivery
           to a signed request
OWNS       webhook_endpoints
A DELIVERY   of channel `webhook`, source `outbox`, ladder `webhook`, with the endpoint in `deliveries.endpoint_id`,
           and the message id and the content type in the headers `webhook-id` and `Content-Type`. The writer reads
           the endpoints of a claim in one statement, signs with the endpoint's secrets and uses the endpoint's URL.
           A webhook without an endpoint (a greeting) is signed with the installation's secret. A reply of 410
           disables the endpoint (`service.disable_gone`).
FORMATS    `standard`, the payload of Standard Webhooks; `cloudevents`, see `cloudevents`. A queued delivery keeps
           its format.
SECRETS    `whsec_…`, shown once, stored under AES-256-GCM. After a rotation both secrets sign until the old one
           expires; another rotation before that removes the older one at once: two sign at most.
STATES     enabled; disabled by an operator, or by a reply of 410 from the endpoint. A disabled endpoint gets nothing:
           no new deliveries, and queued ones are refused. `silent_topics` are its topics that are not posted: deleted
           by force, or with a paused or failed publisher. A topic created again is posted again.
"""
