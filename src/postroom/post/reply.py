"""An attempt to deliver a message: its envelope, its content, and the reply of the other side.

A reply holds facts. `postroom.post.meaning` decides their meaning.
"""

from enum import StrEnum
from typing import Protocol

import msgspec


class Stage(StrEnum):
    """The stage of the session at the deciding reply."""

    CONNECT = "connect"  # before any command: connection refused, timeout, unknown host
    TLS = "tls"  # TLS failed or was not trusted
    LOGIN = "login"  # our credentials
    SENDER = "sender"  # MAIL FROM
    RECIPIENT = "recipient"  # RCPT TO
    CONTENT = "content"  # DATA was sent, or content is being transferred
    FINAL = "final"  # the whole content was sent; without a code, the outcome is unknown


class Envelope(msgspec.Struct, frozen=True):
    """Sender, recipients, and the identifiers that this message keeps over all attempts."""

    delivery_id: int
    message_id: str
    sender: str  # return path; empty for the null reverse-path
    recipients: tuple[str, ...]
    lane: str = "transactional"
    has_utf8_headers: bool = False  # an address in the headers is not ASCII

    @property
    def needs_smtputf8(self) -> bool:
        """True if only servers with internationalised mail (RFC 6531) can accept it."""
        return self.has_utf8_headers or not (self.sender.isascii() and "".join(self.recipients).isascii())


class Content(Protocol):
    """A composed message that can be encoded for the capabilities of the server.

    A message without a bare CR or LF and without a line that starts with a dot may say so with `is_stuffed`.
    """

    def encode(self, *, eight_bit: bool) -> bytes:
        """Return the message with CRLF line ends; with `eight_bit` false, every byte is ASCII."""


class RecipientReply(msgspec.Struct, frozen=True):
    """The reply about one recipient."""

    address: str
    code: int
    enhanced: str | None = None
    text: str = ""


class Reply(msgspec.Struct, frozen=True):
    """The reply of the other side to one attempt.

    `code` is absent if no answer came (connection refused, timeout, connection lost). `recipients` has one entry for
    each recipient with its own reply; the others share the reply of the whole.
    """

    stage: Stage
    code: int | None = None
    enhanced: str | None = None
    text: str = ""
    retry_after_s: float | None = None
    remote_host: str | None = None
    tls: str | None = None  # protocol version, such as "TLSv1.3"
    recipients: tuple[RecipientReply, ...] = ()
    suppress: bool = False  # the stub transport: end as suppressed, nothing was sent
