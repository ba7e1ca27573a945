"""The archive's loop: every hour it archives what has become old, and goes on with erasures that wait for files."""

import asyncio

import asyncpg
import structlog

from postroom.archive.erasure.service import resume_erasures
from postroom.archive.model import ArchiveOptions
from postroom.archive.service import run_archive
from postroom.db.room import Room
from postroom.delivery.completer import FLICKER
from postroom.errors import ArchiveBusy, PostroomError
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
        """One turn; whatever goes wrong is logged and tried again at the next."""
        try:
            await resume_erasures(self._room, self._options)
            await run_archive(self._room, self._options, actor=ACTOR, clock=self._clock)
        except ArchiveBusy:
            return
        except (*FLICKER, asyncpg.PostgresError) as error:
            _log.warning("archive_postponed", error=type(error).__name__)
        except (PostroomError, OSError) as error:
            _log.error("archive_failed", error=str(error))
