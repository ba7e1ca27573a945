"""What the archive speaks of: pieces, their states, and how long things are kept. Pure."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from postroom.archive.settings import ARCHIVED_TABLES
from postroom.settings import Settings

BACKGROUND_SHARE = 0.05
BACKGROUND_PAGES = 256


class SegmentState(StrEnum):
    """How far the work on a piece is; the migration says what each step means."""

    COLLECTING = "collecting"
    EXPORTING = "exporting"
    EXPORTED = "exported"
    VERIFIED = "verified"
    DETACHED = "detached"
    ARCHIVED = "archived"
    EXPIRED = "expired"


HAS_FILE = (SegmentState.EXPORTED, SegmentState.VERIFIED, SegmentState.DETACHED, SegmentState.ARCHIVED)
"""States in which the archive has the file of a piece."""

MAY_HAVE_FILE = (SegmentState.EXPORTING, *HAS_FILE)
"""And the one in which a killed process may have left one behind."""


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
    state: SegmentState
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
    store_url: str | None  # the store it lies in; None before anything was written
    columns: tuple[Column, ...]
    file_sha256: str | None
    content_sha256: str | None
    is_foreign: bool  # another room wrote the file, of which this one is a copy: it is read and never changed

    @property
    def month(self) -> str:
        return f"{self.from_time:%Y-%m}"

    @property
    def label(self) -> str:
        return f"{self.table_name} {self.month} part {self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Where the archive is, and how long things stay here and there."""

    url: str | None = None  # where new pieces go: a folder, or s3://bucket/prefix; None: nothing is archived
    copy_url: str | None = None  # read from here, wherever the pieces were written: a copy of the archive
    endpoint: str | None = None  # of a store that speaks S3 and is not Amazon's
    tables: tuple[str, ...] = ARCHIVED_TABLES
    hot: timedelta = timedelta(days=90)
    keep: timedelta = timedelta(days=365)
    hot_by_table: tuple[tuple[str, timedelta], ...] = ()  # where a table differs
    keep_by_table: tuple[tuple[str, timedelta], ...] = ()
    months_ahead: int = 2
    pages: int = 1024  # read in one step of an export
    batch_limit: int = 5000  # late rows moved in one transaction
    share: float = 1.0  # of the time at work; the rest of it is for those who have mail to send
    interval: timedelta = timedelta(hours=1)  # between two turns of the loop
    work_dir: Path | None = None  # for files on their way; the system's temporary directory unless given

    def hot_for(self, table: str) -> timedelta:
        return dict(self.hot_by_table).get(table, self.hot)

    def keep_for(self, table: str) -> timedelta:
        return dict(self.keep_by_table).get(table, self.keep)

    @classmethod
    def in_background(cls, settings: Settings | None = None) -> Self:
        """As the loop works beside the queue: in small steps, a twentieth of the time."""
        chosen = cls() if settings is None else cls.of(settings)
        return replace(chosen, share=min(chosen.share, BACKGROUND_SHARE), pages=min(chosen.pages, BACKGROUND_PAGES))

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The options that the settings name.

        Only beside the embedded server the data directory will do: with a database that others reach too, it would be
        the disk of whichever worker happened to hold the lock.
        """
        is_embedded = settings.database_url is None
        chosen: dict[str, Any] = {
            "url": settings.archive_url or (str(settings.data_dir / "archive") if is_embedded else None),
            "endpoint": settings.archive_endpoint,
            "interval": settings.archive_interval,
        }
        for name, value in (("hot", settings.archive_after), ("keep", settings.archive_retention)):
            chosen[name if isinstance(value, timedelta) else f"{name}_by_table"] = value
        return cls(**chosen)


@dataclass(slots=True)
class RunReport:
    """What a run of the archive did."""

    partitions_made: int = 0
    archived: list[Segment] = field(default_factory=list)
    expired: list[Segment] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # what went wrong, by piece; the others went on

    @property
    def rows(self) -> int:
        return sum(segment.rows or 0 for segment in self.archived)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What became of checking one file; without a piece it is a file that no record knows."""

    path: str
    segment: Segment | None
    problem: str | None

    @property
    def is_good(self) -> bool:
        return self.problem is None
