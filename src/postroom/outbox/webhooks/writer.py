"""Writes webhooks: headers, one signature, body.

A webhook of an endpoint is signed with the secrets that the endpoint has now, two during a rotation, and goes to the
URL that the endpoint has now: a signature never reaches another URL. Every other webhook is signed with the secrets of
the installation. The id is the same for every attempt, so that a receiver recognises a repetition; the timestamp and
the signature are new for each attempt.
"""

import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime
from urllib.parse import quote

from postroom.db.pool import Pool
from postroom.delivery.attempt import Undeliverable
from postroom.delivery.model import ClaimId, Outgoing
from postroom.errors import ConfigurationError
from postroom.outbox.webhooks import store
from postroom.outbox.webhooks.model import EndpointStatus, WebhookEndpoint, purpose_of
from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.runtime.clock import utc_now
from postroom.runtime.secrets import SecretBox
from postroom.transports.webhook.signing import read_secret, sign
from postroom.transports.webhook.transport import WebhookContent

USER_AGENT = "Postroom-Webhook/1"
JSON = "application/json"
REFUSED = 550  # a permanent refusal, as from SMTP
_SET_HERE = frozenset({"accept-encoding", "connection", "content-length", "expect", "host", "transfer-encoding"})
"""Headers of the connection; a delivery cannot set them."""


class WebhookWriter:
    """Writes the webhooks of one room; `secrets` are the installation's, two while one replaces the other."""

    def __init__(self, pool: Pool, box: SecretBox, secrets: Sequence[str] = ()) -> None:
        self._pool, self._box = pool, box
        self._keys = tuple(read_secret(secret) for secret in secrets)
        self._endpoints: dict[int, WebhookEndpoint | None] = {}

    async def prepare(self, claim: Sequence[Outgoing], _open_claims: Collection[ClaimId]) -> None:
        """Read the endpoints of a claim; None stands for a deleted one."""
        ids = {outgoing.endpoint_id for outgoing in claim if outgoing.endpoint_id is not None}
        if not ids:
            return
        found = {endpoint.id: endpoint for endpoint in await store.list_signing(self._pool, ids=sorted(ids))}
        self._endpoints.update((endpoint_id, found.get(endpoint_id)) for endpoint_id in ids)

    def write(self, outgoing: Outgoing) -> tuple[Envelope, Content]:
        """Sign one webhook. ValueError: it can never be posted; `Undeliverable`: not now, or not to this endpoint."""
        if outgoing.endpoint_id is None:
            return compose(outgoing, self._keys, now=utc_now())
        endpoint = self._endpoints[outgoing.endpoint_id]
        if endpoint is None or endpoint.status is EndpointStatus.DISABLED:
            state = "was deleted" if endpoint is None else f"is disabled ({endpoint.disabled_reason})"
            raise Undeliverable(Reply(Stage.RECIPIENT, REFUSED, text=f"the endpoint {state}"))
        return compose(outgoing, self._keys_of(endpoint), url=endpoint.url, now=utc_now())

    def _keys_of(self, endpoint: WebhookEndpoint) -> list[bytes]:
        sealed = [endpoint.secret, *([endpoint.previous] if endpoint.previous else [])]
        try:
            return [read_secret(self._box.open(secret, purpose=purpose_of(endpoint.id)).decode()) for secret in sealed]
        except ConfigurationError as error:  # the sealing key is not configured here, or the secret is of another row
            raise Undeliverable(Reply(Stage.LOGIN, text=error.message)) from error


def compose(
    outgoing: Outgoing, keys: Sequence[bytes], *, now: datetime, url: str | None = None
) -> tuple[Envelope, WebhookContent]:
    """The envelope, whose only recipient is the URL of the delivery, and the signed request."""
    if len(outgoing.recipients) != 1:
        raise ValueError("a webhook goes to exactly one URL")
    if outgoing.text is None:
        raise ValueError("a webhook needs a body")
    assert isinstance(outgoing.text, str), "only templates are rendered as bytes"
    body, given = outgoing.text.encode(), outgoing.headers if outgoing.endpoint_id is not None else {}
    message_id, timestamp = given.get("webhook-id") or webhook_id(outgoing), int(now.timestamp())
    own = {
        "Content-Type": given.get("Content-Type", JSON),
        "User-Agent": USER_AGENT,
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
    }
    if outgoing.idempotency_key is not None:
        own["X-Idempotency-Key"] = _header_value(outgoing.idempotency_key)
    if keys:
        own["webhook-signature"] = sign(keys, message_id=message_id, timestamp=timestamp, body=body)
    to = outgoing.recipients[0].address
    content = WebhookContent({**_others(outgoing, own), **own}, body, url or to, outgoing.endpoint_id)
    return Envelope(outgoing.id, message_id, "", (to,), outgoing.lane.value), content


def _others(outgoing: Outgoing, own: dict[str, str]) -> dict[str, str]:
    """The headers of the delivery, without those set here."""
    taken = _SET_HERE | {name.lower() for name in own}
    others = {name: value for name, value in outgoing.headers.items() if name.lower() not in taken}
    if not all(f"{name}{value}".isascii() and f"{name}{value}".isprintable() for name, value in others.items()):
        raise ValueError("headers of a webhook must be printable ASCII")
    return others


def _header_value(key: str) -> str:
    """The key, percent-encoded if a header cannot carry it."""
    return key if key.isascii() and key.isprintable() else quote(key)


def webhook_id(outgoing: Outgoing) -> str:
    """An id that is the same for every attempt of a delivery and unique across installations."""
    seed = f"{outgoing.id}:{outgoing.created_at.timestamp()}".encode()
    return "msg_" + hashlib.sha256(seed).hexdigest()[:32]
