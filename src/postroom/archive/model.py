"""What the archive speaks of: pieces, their states, and how long things are kept. Pure."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

ARCHIVED_TABLES = ("attempts", "open_events", "click_events")
"""Tables partitioned by month whose closed months move to the archive. One that is not there is passed over."""

BACKGROUND_SHARE = 0.05
BACKGROUND_PAGES = 256


class State(StrEnum):
    """How far the work on a piece is; the migration says what each step means."""

    COLLECTING = "collecting"
    EXPORTING = "exporting"
    EXPORTED = "exported"
    VERIFIED = "verified"
    DETACHED = "detached"
    ARCHIVED = "archived"
    EXPIRED = "expired"


HAS_FILE = (State.EXPORTED, State.VERIFIED, State.DETACHED, State.ARCHIVED)
"""States in which the archive has the file of a piece."""


@dataclass(frozen=True, slots=True)
class Month:
    """A month of a table."""

    table: str
    begin: datetime  # its first moment, UTC

    @classmethod
    def parse(cls, table: str, text: str) -> "Month":
        """`2026-01`; ValueError when it is not a month."""
        return cls(table, datetime.strptime(f"{text}-01+0000", "%Y-%m-%d%z"))

    @property
    def restored_name(self) -> str:
        return f"{self.table}_restored_{self.begin:%Y_%m}"

    def __str__(self) -> str:
        return f"{self.begin:%Y-%m}"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, and its type in the archive."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a file holds: enough to tell that nothing was lost on the way."""

    rows: int
    bytes: int
    min_time: datetime | None
    max_time: datetime | None
    columns: tuple[Column, ...]
    file_sha256: str
    content_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One piece: a month of a table, or what came late of it."""

    id: int
    state: State
    table_name: str
    part: int
    rows: int | None
    bytes: int | None
    from_time: datetime
    to_time: datetime
    min_time: datetime | None
    max_time: datetime | None
    begun_at: datetime
    exported_at: datetime | None
    verified_at: datetime | None
    archived_at: datetime | None
    expired_at: datetime | None
    restored_at: datetime | None
    restored_name: str | None
    source_name: str
    is_attached: bool
    path: str
    columns: tuple[Column, ...]
    file_sha256: str | None
    content_sha256: str | None

    @property
    def month(self) -> str:
        return f"{self.from_time:%Y-%m}"

    @property
    def label(self) -> str:
        return f"{self.table_name} {self.month} part {self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Where the archive is, and how long things stay here and there."""

    url: str = "archive"  # a folder, or s3://bucket/prefix
    endpoint: str | None = None  # of a store that speaks S3 and is not Amazon's
    tables: tuple[str, ...] = ARCHIVED_TABLES
    hot: timedelta = timedelta(days=90)
    keep: timedelta = timedelta(days=365)
    months_ahead: int = 2
    pages: int = 1024  # read in one step of an export
    batch_limit: int = 5000  # late rows moved in one transaction
    share: float = 1.0  # of the time at work; the rest of it is for those who have mail to send
    interval: timedelta = timedelta(hours=1)  # between two turns of the loop
    work_dir: Path | None = None  # for files on their way; the system's temporary directory unless given

    @classmethod
    def in_background(cls, settings: Any = None) -> Self:
        """As the loop works beside the queue: in small steps, a twentieth of the time."""
        chosen = cls() if settings is None else cls.of(settings)
        return replace(chosen, share=min(chosen.share, BACKGROUND_SHARE), pages=min(chosen.pages, BACKGROUND_PAGES))

    @classmethod
    def of(cls, settings: Any) -> Self:
        """The options that the settings name; what they do not know keeps its default."""
        chosen: dict[str, Any] = {
            "url": getattr(settings, "archive_url", None) or str(settings.data_dir / "archive"),
            "endpoint": getattr(settings, "archive_endpoint", None),
            "hot": getattr(settings, "archive_after", None),
            "keep": getattr(settings, "archive_retention", None),
            "interval": getattr(settings, "archive_interval", None),
        }
        return cls(**{name: value for name, value in chosen.items() if value is not None})


@dataclass(slots=True)
class RunReport:
    """What a run of the archive did."""

    partitions_made: int = 0
    archived: list[Segment] = field(default_factory=list)
    expired: list[Segment] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(segment.rows or 0 for segment in self.archived)


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of checking one file."""

    segment: Segment
    problem: str | None

    @property
    def is_good(self) -> bool:
        return self.problem is None
