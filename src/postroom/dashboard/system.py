"""The pages about the installation itself: health, workers, settings, storage, archive."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from postroom.archive import service as archive
from postroom.archive.model import Segment
from postroom.backup.stores import StoredBackup, list_backups
from postroom.dashboard import store
from postroom.dashboard.listing import Filter, ListColumn, columns
from postroom.dashboard.model import Partition, SeenWorker
from postroom.dashboard.overview import ROWS_BEHIND
from postroom.dashboard.page import PageRequest, listing, page
from postroom.rooms.model import FoundRoom
from postroom.runtime.endpoint import Answer, ProtocolError
from postroom.runtime.finding import Finding, Severity, worst_first
from postroom.runtime.setting import variable_of, write_duration
from postroom.settings import Settings

SYSTEM = "audit:read"
MOST_WORKERS = 200  # rows that a person scrolls through
MOST_PARTITIONS = 200  # as above
MOST_ROOMS = 200  # as above


_FINDING = columns(
    Finding,
    "check",
    "verdict",
    "found",
    check={"link": lambda finding: ROWS_BEHIND.get(finding.check)},
    verdict={"label": "Status", "form": "state"},
    found={"form": "noted", "value": lambda finding: (finding.found, finding.advice)},
)


async def health_page(request: PageRequest) -> Answer:
    """The doctor's findings, problems first; they are at most a minute old."""
    findings = await request.dashboard.figures.findings.get()
    return request.listing(
        "Health",
        _FINDING,
        (worst_first(findings), None),
        lead=f"{_summary(findings)} The checks of `postroom doctor`, run on this host at most a minute ago.",
        empty="This process runs no checks; use postroom doctor.",
        tabs=_health_tabs("/health"),
    )


def _health_tabs(shown: str) -> list[tuple[str, str, bool]]:
    pages = {"Health": "/health", "Going live": "/going-live"}
    return [(name, path, path == shown) for name, path in pages.items()]


async def going_live_page(request: PageRequest) -> Answer:
    """The checks of real mail, judged as if it left now; a mail is sent by the command only."""
    findings = await request.dashboard.figures.live_findings.get()
    missing = sum(finding.verdict is not Severity.OK for finding in findings)
    state = "Real mail may leave." if not missing else f"{missing} of {len(findings)} need attention; they come first."
    return request.listing(
        "Going live",
        _FINDING,
        (worst_first(findings), None),
        lead=f"{state} `postroom doctor --live` also checks the database, and sends a probe mail through the relay.",
        empty="This process runs no checks; use postroom doctor --live.",
        tabs=_health_tabs("/going-live"),
    )


def _summary(findings: Sequence[Finding]) -> str:
    passed = sum(finding.verdict == "ok" for finding in findings)
    if passed == len(findings):
        return f"All {passed} checks pass."
    return f"{len(findings) - passed} of {len(findings)} checks need attention; they come first."


async def workers_page(request: PageRequest) -> Answer:
    lease = request.call.room.settings.lease
    found = await store.list_workers(request.pool, page_limit=MOST_WORKERS)
    return request.listing(
        "Workers",
        _worker_columns(lease),
        (found, None),
        lead=f"A worker reports three times per lease of {lease.total_seconds():g} s. A silent one has stopped or "
        "lost the database; its mail is taken over when the lease ends.",
        empty="No worker is running. Deliveries wait until one does: postroom work.",
    )


def _worker_columns(lease: timedelta) -> tuple[ListColumn, ...]:
    return (
        ListColumn("host", "Host"),
        ListColumn("state", "Status", "state", value=lambda worker: worker.state(datetime.now(UTC), lease)),
        *columns(
            SeenWorker,
            "pid",
            "asleep",
            "started_at",
            "seen_at",
            pid={"form": "code"},
            asleep={"label": "Waits for work in"},
            seen_at={"label": "Last report"},
        ),
    )


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting in force, without secrets."""

    variable: str
    value: str
    is_changed: bool
    about: str


_SETTING = columns(
    ShownSetting,
    "variable",
    "value",
    "is_changed",
    "about",
    variable={"form": "code"},
    value={"form": "text"},
    is_changed={"label": "Source", "form": "state", "value": lambda each: "set" if each.is_changed else None},
    about={"form": "marked"},
)
SOURCES = ("set", "default")


async def settings_page(request: PageRequest) -> Answer:
    wanted, source = (request.asked("q") or "").lower(), request.asked("source")
    shown = [
        each
        for each in shown_settings(request.call.room.settings)
        if wanted in f"{each.variable} {each.about}".lower()
        and (source not in SOURCES or each.is_changed == (source == "set"))
    ]
    return request.listing(
        "Settings",
        _SETTING,
        (shown, None),
        lead="The settings of this process. The value of a secret is not shown.",
        filters=[Filter("q", "Search", placeholder="SMTP"), Filter("source", "Source", options=SOURCES)],
    )


def shown_settings(settings: Settings) -> Iterator[ShownSetting]:
    for entry in sorted(fields(settings), key=variable_of):
        value = getattr(settings, entry.name)
        text = ("set, not shown" if value else "") if not entry.repr else without_password(_plain(value))
        yield ShownSetting(variable_of(entry), text, value != entry.default, entry.metadata["about"])


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join(_plain(each) for each in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return write_duration(value) if isinstance(value, timedelta) else str(value)


def without_password(text: str) -> str:
    """The text; the user and the password of a URL are replaced by dots."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return text
    if "@" not in parts.netloc:
        return text
    return urlunsplit(parts._replace(netloc="…@" + parts.netloc.rpartition("@")[2]))


_PARTITION = columns(
    Partition, "table_name", "name", "period", "rows", "bytes",
    table_name={"label": "Table"}, name={"form": "code", "label": "Partition"}, rows={"label": "Rows (estimate)"},
    bytes={"form": "size", "label": "Size"}, period={"is_minor": True},
)  # fmt: skip
_ROOM = columns(
    FoundRoom, "name", "server", "state", "version", "bytes",
    name={"form": "code", "label": "Room"}, version={"label": "Last migration"},
    bytes={"form": "size", "label": "Size"},
)  # fmt: skip


def _storage_tabs(request: PageRequest, shown: str) -> list[tuple[str, str, bool]]:
    pages = {"Partitions": "/storage", "Rooms": "/storage/rooms", "Backups": "/storage/backups"}
    is_alone = request.dashboard.discover is None
    return [(name, path, name == shown) for name, path in pages.items() if name != "Rooms" or not is_alone]


async def partitions_page(request: PageRequest) -> Answer:
    return request.listing(
        "Storage",
        _PARTITION,
        (await store.list_partitions(request.pool, page_limit=MOST_PARTITIONS), None),
        lead="Large tables have a partition per month. Workers make those of the coming months, and the archive "
        "exports and drops old ones.",
        tabs=_storage_tabs(request, "Partitions"),
    )


async def rooms_page(request: PageRequest) -> Answer:
    """The rooms of all servers; a tenant's dashboard does not list those of others."""
    if request.dashboard.discover is None:
        raise ProtocolError(HTTPStatus.NOT_FOUND, "The rooms are listed in the dashboard of POSTROOM_SCHEMA.")
    found = await request.dashboard.discover()
    silent = "".join(f" Server {failure.server} does not respond: {failure.reason}." for failure in found.failures)
    return request.listing(
        "Rooms",
        _ROOM,
        (list(found.rooms[:MOST_ROOMS]), None),
        lead=f"{len(found.rooms)} rooms on the servers of POSTROOM_SERVERS, each in its own schema; "
        f"`postroom rooms list` prints them all. This dashboard shows {request.call.room.name}.{silent}",
        tabs=_storage_tabs(request, "Rooms"),
    )


_BACKUP = columns(
    StoredBackup, "made_at", "path", "is_scheduled",
    made_at={"label": "Made"}, path={"form": "code", "label": "File"}, is_scheduled={"label": "Scheduled"},
)  # fmt: skip


async def backups_page(request: PageRequest) -> Answer:
    return request.listing(
        "Backups",
        _BACKUP,
        (await list_backups(request.call.room), None),
        lead="Finished backups in the store of this room. Making, verifying and restoring them are commands: `postroom "
        "backup` and `postroom restore`. Backups written to other places are in the audit log.",
        empty="There is no backup in the store. POSTROOM_BACKUP_URL switches scheduled backups on.",
        tabs=_storage_tabs(request, "Backups"),
    )


_SEGMENT = columns(Segment, "table_name", "from_time", "part", "state", "rows", "bytes", bytes={"form": "size"})


PAGES = (
    page("/health", health_page, scope=SYSTEM),
    page("/going-live", going_live_page, scope=SYSTEM),
    page("/workers", workers_page, scope=SYSTEM),
    page("/settings", settings_page, scope=SYSTEM),
    page("/storage", partitions_page, scope=SYSTEM),
    page("/storage/rooms", rooms_page, scope=SYSTEM),
    page("/storage/backups", backups_page, scope=SYSTEM),
    listing(
        "/archive",
        "Archive",
        _SEGMENT,
        archive.list_page,
        scope="archive:operate",
        lead="Months of large tables that were exported to files. Running, verifying and restoring the archive are "
        "commands: `postroom archive`.",
        empty="Nothing is archived yet. POSTROOM_ARCHIVE_URL switches the archive on.",
    ),
)
