"""Models of the archive: pieces, their states, retention. Pure."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from postroom.archive.settings import ARCHIVED_TABLES
from postroom.settings import Settings

# Share of the time: the loop beside the workers leaves the database to the queue; a larger share archives faster.
BACKGROUND_SHARE = 0.05
BACKGROUND_PAGES = 256  # 2 MB per statement: locks and snapshots stay short; more pages need fewer statements


class SegmentState(StrEnum):
    """The state of a piece; the migration describes each step."""

    COLLECTING = "collecting"
    EXPORTING = "exporting"
    EXPORTED = "exported"
    VERIFIED = "verified"
    DETACHED = "detached"
    ARCHIVED = "archived"
    EXPIRED = "expired"


HAS_FILE = (SegmentState.EXPORTED, SegmentState.VERIFIED, SegmentState.DETACHED, SegmentState.ARCHIVED)
"""States in which the piece has a file."""

MAY_HAVE_FILE = (SegmentState.EXPORTING, *HAS_FILE)
"""`HAS_FILE`, and the state in which a killed process may have left a file."""


@dataclass(frozen=True, slots=True)
class Month:
    """One month of a table."""

    table: str
    begin: datetime  # its first moment, UTC

    @classmethod
    def parse(cls, table: str, text: str) -> "Month":
        """Parse a month such as `2026-01`; raises ValueError if it is not one."""
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
    """The content of a file: counts and checksums that prove that no row was lost."""

    rows: int
    bytes: int
    min_time: datetime | None
    max_time: datetime | None
    columns: tuple[Column, ...]
    file_sha256: str
    content_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One piece: a month of a table, or rows of that month that arrived later."""

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
    store_url: str | None  # the store with its file; None until one was written
    columns: tuple[Column, ...]
    file_sha256: str | None
    content_sha256: str | None
    is_foreign: bool  # the file belongs to the original of this room: it is read and never changed

    @property
    def month(self) -> str:
        return f"{self.from_time:%Y-%m}"

    @property
    def label(self) -> str:
        return f"{self.table_name} {self.month} part {self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """The store of the archive, retention, and the pace of a run."""

    url: str | None = None  # store for new pieces: a folder, or s3://bucket/prefix; None: nothing is archived
    copy_url: str | None = None  # read from this copy of the archive instead of the recorded stores
    endpoint: str | None = None  # of an S3-compatible store other than Amazon's
    tables: tuple[str, ...] = ARCHIVED_TABLES
    hot: timedelta = timedelta(days=90)
    keep: timedelta = timedelta(days=365)
    hot_by_table: tuple[tuple[str, timedelta], ...] = ()  # exceptions by table
    keep_by_table: tuple[tuple[str, timedelta], ...] = ()
    months_ahead: int = 2  # runs may fail for a month before rows go to the default partition
    pages: int = 1024  # pages per step of an export
    batch_limit: int = 5000  # late rows moved per transaction
    share: float = 1.0  # share of the time a run works; it pauses for the rest, to leave the database to the queue
    interval: timedelta = timedelta(hours=1)  # between two runs of the loop
    work_dir: Path | None = None  # for temporary files; None: the system's temporary directory

    def hot_for(self, table: str) -> timedelta:
        return dict(self.hot_by_table).get(table, self.hot)

    def keep_for(self, table: str) -> timedelta:
        return dict(self.keep_by_table).get(table, self.keep)

    @classmethod
    def in_background(cls, settings: Settings | None = None) -> Self:
        """The options of the background loop: small steps, a twentieth of the time."""
        chosen = cls() if settings is None else cls.of(settings)
        return replace(chosen, share=min(chosen.share, BACKGROUND_SHARE), pages=min(chosen.pages, BACKGROUND_PAGES))

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The options from the settings.

        The data directory is the default only for the embedded server. With a database that several hosts share, it
        would be the disk of whichever worker holds the lock.
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
    """The result of a run of the archive."""

    partitions_made: int = 0
    archived: list[Segment] = field(default_factory=list)
    expired: list[Segment] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # reason by piece; the other pieces continued

    @property
    def rows(self) -> int:
        return sum(segment.rows or 0 for segment in self.archived)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The result of checking one file; a file without a record has no `segment`."""

    path: str
    segment: Segment | None
    problem: str | None

    @property
    def is_good(self) -> bool:
        return self.problem is None
