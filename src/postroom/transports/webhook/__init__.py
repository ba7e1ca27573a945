"""transports.webhook: deliveries posted to a URL, signed according to Standard Webhooks.

NAME        WebhookTransport, which posts a signed request; postroom.outbox.webhooks.writer composes it
FILES       signing       secrets and signatures
            host_backoff  a circuit breaker for hosts that time out
            replies       HTTP status → reply
            inbox         the URL of the capture inbox
            transport     the `Transport` protocol
A DELIVERY  of channel `webhook` has its URL as the only recipient (kind `to`), its body in the text, and own headers
            beside those set here; its idempotency key, if any, is sent as `X-Idempotency-Key`
PROMISES    `send` returns a `Reply` whatever the receiver or the network does. Redirects are not followed, proxies of
            the environment are not used, and at most 2 KB of a response are read and kept. `webhook-id` is the same for
            all attempts. A received status is the answer even if the body fails; only more than 64 KB of header fields,
            or more than 128 of them, hide it, and the request is retried.
SECURITY    A receiver on a private, loopback, link-local or otherwise internal address is rejected unless allowed:
            POSTROOM_WEBHOOK_ALLOW_PRIVATE, or for loopback alone POSTROOM_WEBHOOK_ALLOW_LOOPBACK, which `postroom up`
            sets in development. The connection goes to exactly the checked address; TLS is verified against the URL's
            host name.
"""
