"""Records that are only read: entries of the audit log, and commands with their results."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One manual action: `actor` did `action` to `subject`; `before` and `after` hold the values it changed."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class KeptCommand:
    """A command, when it was executed, and its result; its events carry the same transaction id."""

    id: int
    transaction_id: int
    occurred_at: datetime
    type: str
    command_id: str
    data: Any
    metadata: Any
    result: Any
