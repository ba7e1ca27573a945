"""Models of the inbox."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Captured:
    """A message to be stored in the inbox."""

    delivery_id: int
    mail_from: str
    recipients: Sequence[str]
    subject: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """One message in a list. `mail_from` and `recipients` are the envelope's."""

    id: int
    delivery_id: int
    received_at: datetime
    mail_from: str
    recipients: tuple[str, ...]
    subject: str


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """One captured message with its bytes."""

    entry: InboxEntry
    raw: bytes
