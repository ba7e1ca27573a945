"""Archive checks of the doctor: missing files, unreachable stores, unfinished erasures.

It checks that files exist; `postroom archive verify` checks their content.
"""

import asyncio
from dataclasses import dataclass, field

from postroom.archive import store
from postroom.archive.model import HAS_FILE, ArchiveOptions
from postroom.archive.objects import objects_of
from postroom.db.pool import Session
from postroom.erasure.store import list_running
from postroom.errors import PostroomError

PATIENCE_S = 10.0  # doctor waits; a reachable object store responds in far less than a second


@dataclass(slots=True)
class ArchiveHealth:
    """The result of the archive checks."""

    pieces: int = 0
    foreign: int = 0  # pieces whose files belong to the original of this room
    missing: list[str] = field(default_factory=list)  # paths
    unreachable: dict[str, str] = field(default_factory=dict)  # reason by store URL
    erasures: int = 0  # unfinished erasures


async def examine_archive(session: Session, options: ArchiveOptions) -> ArchiveHealth:
    """Check that the file of every piece exists in its store."""
    health = ArchiveHealth(erasures=len(await list_running(session)))
    for segment in await store.list_segments(session):
        if segment.state not in HAS_FILE:
            continue
        health.pieces += 1
        health.foreign += segment.is_foreign
        url = segment.store_url or "the archive"
        if url in health.unreachable:
            continue
        try:
            async with asyncio.timeout(PATIENCE_S):
                if not await objects_of(segment, options).exists(segment.path):
                    health.missing.append(segment.path)
        except (PostroomError, OSError) as error:  # TimeoutError is an OSError
            health.unreachable[url] = str(error) or f"timed out after {PATIENCE_S:g} s"
    return health
