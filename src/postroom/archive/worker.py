"""The archive's loop: every hour it archives old months, applies retention, goes on with erasures and backs up."""

import asyncio
from collections.abc import Awaitable

import asyncpg
import structlog

from postroom.archive.errors import ArchiveBusy
from postroom.archive.model import ArchiveOptions
from postroom.archive.retention import forget_old
from postroom.archive.service import run_archive
from postroom.backup.stores import BackupOptions, back_up_if_due
from postroom.db.faults import FLICKER
from postroom.db.room import Room
from postroom.erasure.service import resume_erasures
from postroom.errors import PostroomError
from postroom.runtime.clock import Clock, database_time

_log = structlog.get_logger()

ACTOR = "postroom"


class ArchiveKeeper:
    """One of any number; whoever holds the archive's lock works, the others come back later."""

    def __init__(self, room: Room, options: ArchiveOptions, *, clock: Clock = database_time) -> None:
        self._room, self._options, self._clock = room, options, clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Turn after turn. A stop ends a turn where it is: whatever is half done is finished by the next."""
        stopping = asyncio.create_task(self._stopping.wait())
        while not stopping.done():
            turn = asyncio.create_task(self._turn())
            await asyncio.wait({turn, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                turn.cancel()
            await asyncio.wait({turn})

    async def _turn(self) -> None:
        await self.run_once()
        await asyncio.sleep(self._options.interval.total_seconds())

    async def run_once(self) -> None:
        """One turn of four parts. A part that fails does not stop the others."""
        await _guarded(resume_erasures(self._room, self._options))
        await _guarded(run_archive(self._room, self._options, actor=ACTOR, clock=self._clock))
        await _guarded(forget_old(self._room.pool, self._options, clock=self._clock))
        backups = BackupOptions.of(self._room.settings)
        await _guarded(back_up_if_due(self._room, backups, actor=ACTOR, clock=self._clock))


async def _guarded(part: Awaitable[object]) -> None:
    """Whatever goes wrong is logged, and tried again at the next turn."""
    try:
        await part
    except ArchiveBusy:
        return
    except (*FLICKER, asyncpg.PostgresError) as error:
        _log.warning("archive_postponed", error=type(error).__name__)
    except PostroomError as error:
        _log.error("archive_failed", error=str(error))
    except Exception:  # noqa: BLE001 - a bug of ours: seen in the log, and no reason to try without a pause
        _log.exception("archive_failed")
