"""From a claimed delivery to a signed request.

The id is taken from the delivery, so that every attempt carries the same one and a receiver can recognise a repetition;
the timestamp, and with it the signature, is the attempt's.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from urllib.parse import quote

from postroom.post.reply import Content, Envelope
from postroom.transports.webhook.signing import read_secret, sign

USER_AGENT = "Postroom-Webhook/1"
_SET_HERE = frozenset({"accept-encoding", "connection", "content-length", "expect", "host", "transfer-encoding"})
"""Headers of the connection; what a delivery says about them is left out."""


class Receiver(Protocol):
    """Where a webhook goes."""

    @property
    def address(self) -> str: ...


class Posting(Protocol):
    """What composing needs of a claimed delivery."""

    @property
    def id(self) -> int: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def lane(self) -> str: ...
    @property
    def recipients(self) -> Sequence[Receiver]: ...
    @property
    def text(self) -> str | None: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def idempotency_key(self) -> str | None: ...
    @property
    def source(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class WebhookContent:
    """One request: its headers, signed, its body, and the source of its delivery."""

    headers: Mapping[str, str]
    body: bytes
    source: str | None = None

    def encode(self, *, eight_bit: bool) -> bytes:
        """The request as a message, which is how an inbox keeps it."""
        body = self.body if eight_bit else self.body.decode().encode("ascii", "backslashreplace")
        lines = [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(["Subject: Webhook", "MIME-Version: 1.0", *lines, "", ""]).encode() + body + b"\r\n"


class WebhookComposer:
    """Composes the webhooks of one room; `secrets` are `whsec_…`, two while one replaces the other."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._keys = tuple(read_secret(secret) for secret in secrets)

    def compose(self, posting: Posting, *, now: datetime) -> tuple[Envelope, Content]:
        """The envelope, whose only recipient is the URL, and the request; ValueError says why it cannot be."""
        if len(posting.recipients) != 1:
            raise ValueError("a webhook goes to exactly one URL")
        if posting.text is None:
            raise ValueError("a webhook needs a body")
        message_id, body = webhook_id(posting), posting.text.encode()
        content = WebhookContent(self._headers(posting, message_id, body, now), body, posting.source)
        envelope = Envelope(posting.id, message_id, "", (posting.recipients[0].address,), str(posting.lane))
        return envelope, content

    def _headers(self, posting: Posting, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
        timestamp = int(now.timestamp())
        own = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
        }
        if posting.idempotency_key is not None:
            own["X-Idempotency-Key"] = _header_value(posting.idempotency_key)
        if self._keys:
            own["webhook-signature"] = sign(self._keys, message_id=message_id, timestamp=timestamp, body=body)
        taken = _SET_HERE | {name.lower() for name in own}
        given = {name: value for name, value in posting.headers.items() if name.lower() not in taken}
        if not all(f"{name}{value}".isascii() and f"{name}{value}".isprintable() for name, value in given.items()):
            raise ValueError("headers of a webhook must be printable ASCII")
        return {**given, **own}


def _header_value(key: str) -> str:
    """The key as it is, or percent-encoded where a header could not carry it."""
    return key if key.isascii() and key.isprintable() else quote(key)


def webhook_id(posting: Posting) -> str:
    """The same for every attempt of a delivery, another for every other delivery of any installation."""
    seed = f"{posting.id}:{posting.created_at.timestamp()}".encode()
    return "msg_" + hashlib.sha256(seed).hexdigest()[:32]
