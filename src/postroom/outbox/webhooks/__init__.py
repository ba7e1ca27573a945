"""outbox.webhooks: events posted to the endpoints that people register, signed with each endpoint's own secret.

NAME       `WebhookPublisher`, from an event to a delivery for each endpoint; `WebhookWriter`, from a claimed delivery
           to a request with one signature
OWNS       webhook_endpoints
A DELIVERY   of channel `webhook`, source `outbox`, ladder `webhook`, with the endpoint in `deliveries.endpoint_id`,
           and the message's id and the content's type in the headers `webhook-id` and `Content-Type`. The writer reads
           the endpoints of a claim in one statement, signs with the endpoint's secrets and names the endpoint's URL.
           A webhook without an endpoint (a greeting) is signed with the installation's secret. An answer of 410
           disables the endpoint (`service.disable_gone`).
FORMATS    `standard`, the payload of Standard Webhooks; `cloudevents`, see `cloudevents`. A waiting delivery keeps
           its own.
SECRETS    `whsec_…`, shown once, stored under AES-256-GCM. After a rotation both sign until the old one ends;
           another rotation before that ends the older one at once: two sign at most.
STATES     enabled; disabled by a person, or by the endpoint itself with 410. A disabled endpoint gets nothing: no new
           deliveries, and those that wait are refused. `silent_topics` names those of its topics that are not posted:
           gone by force, or their publisher is paused or has failed. A topic made again is posted again.
"""
