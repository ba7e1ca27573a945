"""The endpoints of inbox, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from postroom.client.api.shared import LetterWarning
from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    Support = Literal["no", "partial", "yes"]
    Alignment = Literal["aligned", "not_aligned", "unknown"]
    SignatureResult = Literal["fail", "neutral", "pass", "unknown_key"]
else:  # a newer server may have more values
    Support = str
    Alignment = str
    SignatureResult = str


class InboxItem(Struct, frozen=True, kw_only=True):
    """One message in a list. `mail_from` and `recipients` are the envelope's, `author` is the From header."""

    id: int
    delivery_id: int
    received_at: datetime
    from_: str = field(name="from")
    to: list[str]
    subject: str
    author: str
    snippet: str
    size: int
    attachment_count: int
    read: bool
    tags: dict[str, str]


class Cleared(Struct, frozen=True, kw_only=True):
    """The number of deleted messages."""

    cleared: int


class InboxMessage(Struct, frozen=True, kw_only=True):
    """One message in a list. `mail_from` and `recipients` are the envelope's, `author` is the From header."""

    id: int
    delivery_id: int
    received_at: datetime
    from_: str = field(name="from")
    to: list[str]
    subject: str
    author: str
    snippet: str
    size: int
    attachment_count: int
    read: bool
    tags: dict[str, str]
    headers: dict[str, str]
    text: str | None
    html: str | None
    attachments: list[AttachedFile]


class AttachedFile(Struct, frozen=True, kw_only=True):
    """A file in a captured message."""

    filename: str | None
    content_type: str
    content_id: str | None
    size: int
    content: str


class InboxReport(Struct, frozen=True, kw_only=True):
    """The results of all checks."""

    html: list[HtmlFinding]
    links: list[MessageLink]
    authentication: AuthenticationReport
    warnings: list[LetterWarning]


class HtmlFinding(Struct, frozen=True, kw_only=True):
    """A feature that a message uses and some client does not fully support."""

    feature: str
    count: int
    source: str
    support: dict[str, Support]


class MessageLink(Struct, frozen=True, kw_only=True):
    """One address in a message, and the mistakes in its form."""

    url: str
    kind: str
    count: int
    problems: list[str]


class AuthenticationReport(Struct, frozen=True, kw_only=True):
    """The results of one message."""

    from_domain: str
    envelope_domain: str
    spf_alignment: Alignment
    dkim: list[SignatureCheck]
    dkim_alignment: Alignment
    dmarc: str
    mode: str


class SignatureCheck(Struct, frozen=True, kw_only=True):
    """One DKIM-Signature field and its result."""

    domain: str
    selector: str
    algorithm: str
    result: SignatureResult
    reason: str


class LinkAnswers(Struct, frozen=True, kw_only=True):
    """The answers of the links of a message."""

    items: list[LinkAnswer]


class LinkAnswer(Struct, frozen=True, kw_only=True):
    """The answer of a URL: a status, or the reason why the request got no answer."""

    url: str
    status: int | None
    detail: str


class Released(Struct, frozen=True, kw_only=True):
    """The new delivery of a released message."""

    delivery_id: int


class InboxApi(Resource[Kind]):
    """The endpoints of inbox."""

    @listing("/v1/inbox")
    def list(
        self, *, cursor: str | None = None, limit: int = 50, to: str | None = None, query: str | None = None
    ) -> ResultPage[InboxItem]:
        """List captured messages, newest first."""

    @call("DELETE", "/v1/inbox")
    def clear(self) -> Cleared:
        """Delete every captured message."""

    @call("GET", "/v1/inbox/latest")
    def get_latest(self, *, to: str | None = None, query: str | None = None, after: int | None = None) -> InboxMessage:
        """Read the newest captured message of a search."""

    @call("GET", "/v1/inbox/wait")
    def wait_for_message(
        self, *, to: str | None = None, query: str | None = None, after: int | None = None, timeout: int = 10
    ) -> InboxMessage:
        """Wait for a captured message of a search, and read the newest."""

    @call("GET", "/v1/inbox/{message_id}")
    def get_message(self, message_id: int) -> InboxMessage:
        """Read a captured message."""

    @call("PATCH", "/v1/inbox/{message_id}", body=True)
    def change_message(self, message_id: int, *, read: bool) -> InboxMessage:
        """Mark a captured message as read or unread."""

    @call("DELETE", "/v1/inbox/{message_id}")
    def delete_message(self, message_id: int) -> None:
        """Delete a captured message."""

    @call("GET", "/v1/inbox/{message_id}/checks")
    def check_message(self, message_id: int) -> InboxReport:
        """Check HTML, links, authentication and headers of a captured message."""

    @call("POST", "/v1/inbox/{message_id}/links")
    def request_message_links(self, message_id: int) -> LinkAnswers:
        """Send a HEAD request to each link of a captured message."""

    @call("POST", "/v1/inbox/{message_id}/release", body=True)
    def release_message(self, message_id: int, *, to: str) -> Released:
        """Send a captured message to an address as a new delivery; the key also needs `deliveries:write`."""

    @call("GET", "/v1/inbox/{message_id}/raw")
    def get_raw(self, message_id: int) -> bytes:
        """Read the raw bytes of a captured message."""
