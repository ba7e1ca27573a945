"""Models of the inbox, and the scope that its sign-in codes need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

CODES = "operators:manage"
"""The scope without which captured sign-in codes are hidden: the code of an operator with more scopes would grant them.

Those who have it may give every role anyway.
"""


@dataclass(frozen=True, slots=True)
class Captured:
    """A message to be stored in the inbox. The fields after `raw` are read from it for the list and the search."""

    delivery_id: int
    mail_from: str
    recipients: Sequence[str]
    subject: str
    raw: bytes
    author: str = ""
    content: str = ""
    attachment_count: int = 0


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """One message in a list. `mail_from` and `recipients` are the envelope's, `author` is the From header."""

    id: int
    delivery_id: int
    received_at: datetime
    mail_from: str
    recipients: tuple[str, ...]
    subject: str
    author: str
    snippet: str  # the beginning of the text
    size: int
    attachment_count: int
    is_read: bool
    is_sign_in: bool  # the sign-in code of an operator
    tags: Mapping[str, str]  # of the delivery


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """One captured message with its bytes."""

    entry: InboxEntry
    raw: bytes


@dataclass(frozen=True, slots=True)
class InboxPlace:
    """The ids of the messages that arrived after and before one."""

    newer: int | None
    older: int | None


@dataclass(frozen=True, slots=True)
class InboxCounts:
    """The number of messages in the inbox, and of those that no person opened."""

    total: int
    unread: int
