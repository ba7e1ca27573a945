"""outbox.webhooks: events posted to the endpoints that people register, signed with each endpoint's own secret.

NAME       `WebhookPublisher`, from an event to a delivery for each endpoint; `EndpointTransport`, which signs
OWNS       webhook_endpoints
A DELIVERY   of channel `webhook`, source `outbox`, ladder `webhook`, with the endpoint and the message's id in two
           headers that never leave: the transport replaces them by `webhook-id` and a signature
SECRETS    `whsec_…`, shown once, stored under AES-256-GCM. After a rotation both sign until the old one ends.
STATES     enabled; disabled by a person, or by the endpoint itself with 410. A disabled endpoint gets nothing: no new
           deliveries, and those that wait are refused.
"""
