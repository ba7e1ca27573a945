"""The last step before the wire: the endpoint's own signature.

A delivery of the outbox names its endpoint, its message and, where it is not plain JSON, its type in headers of ours.
Here they become `Content-Type`, `webhook-id` and a signature by the secrets that the endpoint has now, two during a
rotation, whenever the delivery was made. A signature is made for deliveries of the outbox only, and goes to the URL of
its endpoint only, whatever the delivery's row says. Every other webhook passes through as it is. An endpoint that
answers 410 is disabled.
"""

from collections.abc import Mapping
from time import monotonic

import structlog
from msgspec.structs import replace

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool
from postroom.errors import ConfigurationError
from postroom.outbox.publisher import SOURCE
from postroom.outbox.webhooks import service, store
from postroom.outbox.webhooks.model import (
    ENDPOINT_HEADER,
    MESSAGE_HEADER,
    PURPOSE,
    TYPE_HEADER,
    Endpoint,
    EndpointStatus,
)
from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.runtime.secrets import SecretBox
from postroom.transports.base import Transport
from postroom.transports.webhook.compose import WebhookContent
from postroom.transports.webhook.signing import read_secret, sign

GONE = "HTTP 410"
REFUSED = 550
KNOWN_FOR_S = 2.0
_MOST_KNOWN = 1000

_log = structlog.get_logger()


class EndpointTransport:
    """Signs for registered endpoints and hands over to `inner`, the webhook transport."""

    name = "webhook"

    def __init__(self, inner: Transport, pool: Pool, box: SecretBox) -> None:
        self._inner, self._pool, self._box = inner, pool, box
        self._known: dict[int, tuple[float, Endpoint | None]] = {}

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        if not isinstance(content, WebhookContent) or ENDPOINT_HEADER not in content.headers:
            return await self._inner.send(envelope, content)
        if content.source != SOURCE:
            text = f"{ENDPOINT_HEADER} is for deliveries of the outbox; this one is from {content.source!r}"
            return Reply(Stage.RECIPIENT, REFUSED, text=text)
        try:
            endpoint = await self._find(int(content.headers[ENDPOINT_HEADER]), url=envelope.recipients[0])
            signed = content if endpoint is None else WebhookContent(self._headers(endpoint, content), content.body)
        except FLICKER as error:
            return Reply(Stage.CONNECT, text=f"the database went away: {type(error).__name__}")
        except ConfigurationError as error:
            return Reply(Stage.LOGIN, text=error.message)
        if endpoint is None or endpoint.status is EndpointStatus.DISABLED:
            state = "was deleted" if endpoint is None else f"is disabled ({endpoint.disabled_reason})"
            return Reply(Stage.RECIPIENT, REFUSED, text=f"the endpoint {state}")
        reply = await self._inner.send(replace(envelope, recipients=(endpoint.url,)), signed)
        if reply.enhanced == GONE:
            await self._disable(endpoint.id)
        return reply

    async def close(self) -> None:
        await self._inner.close()

    async def _find(self, endpoint_id: int, *, url: str) -> Endpoint | None:
        """The endpoint, as it was a moment ago; as it is now if the delivery knows another URL of it."""
        known_until, known = self._known.get(endpoint_id, (0.0, None))
        if known_until > monotonic() and (known is None or known.url == url):
            return known
        async with self._pool.acquire() as connection:
            endpoint = await store.find_endpoint(connection, id=endpoint_id)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[endpoint_id] = (monotonic() + KNOWN_FOR_S, endpoint)
        return endpoint

    def _headers(self, endpoint: Endpoint, content: WebhookContent) -> Mapping[str, str]:
        ours = (ENDPOINT_HEADER, MESSAGE_HEADER, TYPE_HEADER)
        kept = {name: value for name, value in content.headers.items() if name not in ours}
        if TYPE_HEADER in content.headers:
            kept["Content-Type"] = content.headers[TYPE_HEADER]
        message_id = content.headers[MESSAGE_HEADER]
        sealed = [endpoint.secret, *([endpoint.previous] if endpoint.previous else [])]
        keys = [read_secret(self._box.open(secret, purpose=PURPOSE).decode()) for secret in sealed]
        timestamp = int(kept["webhook-timestamp"])
        signature = sign(keys, message_id=message_id, timestamp=timestamp, body=content.body)
        return {**kept, "webhook-id": message_id, "webhook-signature": signature}

    async def _disable(self, endpoint_id: int) -> None:
        self._known.pop(endpoint_id, None)
        try:
            await service.set_status(
                self._pool, endpoint_id, EndpointStatus.DISABLED, reason="gone", actor="webhook:410"
            )
            _log.warning("webhook_endpoint_gone", endpoint=endpoint_id)
        except FLICKER as error:
            _log.warning("webhook_endpoint_not_disabled", endpoint=endpoint_id, error=type(error).__name__)
