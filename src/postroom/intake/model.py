"""Commands from a stream and their outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from postroom.delivery.model import Accepted
from postroom.errors import FieldError


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One command of a stream: its unique place there and its bytes."""

    place: str  # "redis mail:delivery_commands 1700000000000-0"
    raw: bytes  # a JSON object of the command's flat fields
    intake: str = "stream"  # the default source of a command without a `source` field


@dataclass(frozen=True, slots=True)
class Malformed:
    """The reason why a command cannot be accepted: a stable slug and the invalid fields."""

    reason: str
    errors: Sequence[FieldError]
    source: str | None = None  # from the command, if it could be read

    @property
    def detail(self) -> str:
        return "; ".join(f"{error.field}: {error.message}" for error in self.errors)


Outcome = Accepted | Malformed
"""The outcome of one command of a batch."""


@dataclass(frozen=True, slots=True)
class MalformedSummary:
    """One malformed command. `delivery_id` is its delivery after a resubmission."""

    id: int
    recorded_at: datetime
    resubmitted_at: datetime | None
    dismissed_at: datetime | None
    delivery_id: int | None
    source: str
    reason: str
    detail: str | None
    entry: str | None
    size: int


@dataclass(frozen=True, slots=True)
class MalformedGroup:
    """The waiting commands of one reason."""

    reason: str
    commands: int
    oldest_at: datetime
    newest_at: datetime
    newest_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRedrive:
    """The result of resubmitting many commands unchanged, or of its dry run.

    `accepted` are valid now, `malformed` are not and stay. `is_more`: more commands wait than were tried.
    """

    accepted: int
    malformed: int
    is_more: bool


@dataclass(frozen=True, slots=True)
class MalformedCommand:
    """One malformed command with its bytes."""

    summary: MalformedSummary
    raw: bytes


@dataclass(frozen=True, slots=True)
class MalformedFilter:
    """A filter of malformed commands; None matches all."""

    reason: str | None = None
    source: str | None = None
    resubmitted: bool | None = None
    dismissed: bool | None = None
