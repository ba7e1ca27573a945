"""transports.webhook: deliveries posted to a URL, signed by the rules of Standard Webhooks.

NAME       WebhookTransport, which posts a signed request; postroom.outbox.webhooks.writer writes it
FILES      signing     secrets and signatures
           host_backoff  a circuit breaker for hosts that time out
           verdict     HTTP status → reply
           inbox       the address that stands for the capture inbox
           transport   the seam
A DELIVERY   of channel `webhook` has its URL as the only recipient (kind `to`), its body in the text, and headers of
           its own beside those set here; its idempotency key, if it has one, is sent as `X-Idempotency-Key`
PROMISES   `send` returns a `Reply` whatever the receiver or the network does. Redirects are not followed, proxies of
           the environment not used, at most 2 KB of an answer read, and kept. The same `webhook-id` over all attempts.
           A status that came is the answer, whatever becomes of the body; only header fields beyond 64 KB, or more
           than 128 of them, hide it, and the receiver is asked again.
SECURITY   A receiver on a private, loopback, link-local or otherwise inner address is refused unless allowed; the
           connection goes to exactly the address that was judged; TLS is verified against the URL's host name.
"""
