"""An attempt to hand over a message: its envelope, its content, and what the other side replied.

A reply holds facts. `postroom.post.meaning` decides what they mean.
"""

from enum import StrEnum
from typing import Protocol

import msgspec


class Stage(StrEnum):
    """How far the conversation got before the reply that decided it."""

    CONNECT = "connect"  # nothing was said yet: refused, timed out, no such host
    TLS = "tls"  # the channel could not be secured or trusted
    LOGIN = "login"  # our credentials
    SENDER = "sender"  # MAIL FROM
    RECIPIENT = "recipient"  # RCPT TO
    CONTENT = "content"  # DATA was asked for, or content is being transferred
    FINAL = "final"  # the whole content was handed over; with no code, nobody knows what became of it


class Envelope(msgspec.Struct, frozen=True):
    """Who sends, who receives, and the name this message keeps over all its attempts."""

    delivery_id: int
    message_id: str
    sender: str  # return path; empty for the null reverse-path
    recipients: tuple[str, ...]
    lane: str = "transactional"
    has_utf8_headers: bool = False  # an address in the headers is not ASCII

    @property
    def needs_smtputf8(self) -> bool:
        """True if it can only be handed to servers with internationalised mail (RFC 6531)."""
        addresses = (self.sender, *self.recipients)
        return self.has_utf8_headers or not all(address.isascii() for address in addresses)


class Content(Protocol):
    """A composed message that can be put into bytes for what the server can take."""

    def encode(self, *, eight_bit: bool) -> bytes:
        """Return the message with CRLF line ends; with `eight_bit` false, every byte is ASCII."""


class RecipientReply(msgspec.Struct, frozen=True):
    """What was said about one recipient."""

    address: str
    code: int
    enhanced: str | None = None
    text: str = ""


class Reply(msgspec.Struct, frozen=True):
    """What the other side said to one attempt.

    `code` is None when no answer came (a refused connection, a time-out, a dropped line). `recipients` holds one
    entry for each recipient the other side spoke about; one without an entry shares the reply of the whole.
    """

    stage: Stage
    code: int | None = None
    enhanced: str | None = None
    text: str = ""
    retry_after_s: float | None = None
    remote_host: str | None = None
    tls: str | None = None  # protocol version, such as "TLSv1.3"
    recipients: tuple[RecipientReply, ...] = ()
    suppress: bool = False  # the stub transport: end as suppressed, nothing was tried
