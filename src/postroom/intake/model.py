"""Commands from a stream and what became of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from postroom.delivery.model import Accepted
from postroom.errors import BadInput, FieldError


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One command as it stands in a stream: its place there, which no other entry has, and its bytes."""

    place: str  # "redis mail:delivery_commands 1700000000000-0"
    raw: bytes  # a JSON object of the command's flat fields
    intake: str = "stream"  # whose name stands for the source of a command that does not tell its own


@dataclass(frozen=True, slots=True)
class Malformed:
    """Why a command cannot be accepted: a stable slug, and the fields that are wrong."""

    reason: str
    errors: Sequence[FieldError]
    source: str | None = None  # the command's own, where it could be read

    @property
    def detail(self) -> str:
        return "; ".join(f"{error.field}: {error.message}" for error in self.errors)

    def as_error(self) -> BadInput:
        return BadInput(self.errors)


Outcome = Accepted | Malformed
"""What became of one command of a batch."""


@dataclass(frozen=True, slots=True)
class MalformedSummary:
    """One malformed command. `delivery_id` is what it became when it was resubmitted."""

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
class MalformedCommand:
    """One malformed command with its bytes."""

    summary: MalformedSummary
    raw: bytes


@dataclass(frozen=True, slots=True)
class MalformedFilter:
    """Which malformed commands; None asks for all."""

    reason: str | None = None
    source: str | None = None
    resubmitted: bool | None = None
    dismissed: bool | None = None
