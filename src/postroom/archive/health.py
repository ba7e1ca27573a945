"""What the doctor asks about the archive: whether its files are where they should be, and what waits for them.

Only whether a file is there is asked; what is in it is the question of `postroom archive verify`.
"""

import asyncio
from dataclasses import dataclass, field

from postroom.archive import store
from postroom.archive.model import HAS_FILE, ArchiveOptions
from postroom.archive.objects import objects_of
from postroom.db.pool import Session
from postroom.erasure.store import list_running
from postroom.errors import PostroomError

PATIENCE_S = 10.0


@dataclass(slots=True)
class ArchiveHealth:
    """How the archive is."""

    pieces: int = 0
    foreign: int = 0  # pieces that the room wrote of which this one is a copy
    missing: list[str] = field(default_factory=list)  # paths
    unreachable: dict[str, str] = field(default_factory=dict)  # why, by store
    erasures: int = 0  # that are not done


async def examine_archive(session: Session, options: ArchiveOptions) -> ArchiveHealth:
    """Look for the file of every piece, in the store it was written to."""
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
        except (PostroomError, OSError) as error:  # TimeoutError is one
            health.unreachable[url] = str(error) or f"no answer in {PATIENCE_S:g} s"
    return health
