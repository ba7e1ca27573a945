"""The archive's loop: every hour it continues erasures, archives old months and makes the backup that is due."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from postroom.archive.errors import ArchiveBusy
from postroom.archive.model import ArchiveOptions
from postroom.archive.service import run_archive
from postroom.backup.stores import BackupOptions, back_up_if_due
from postroom.db.room import Room
from postroom.erasure.service import resume_erasures
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop, run_all

ACTOR = "postroom"


class ArchiveWorker:
    """The archive loop of a worker; only the worker that holds the archive's lock acts."""

    def __init__(self, room: Room, options: ArchiveOptions, *, clock: Clock = database_time) -> None:
        self._room, self._options, self._clock = room, options, clock

    def loop(self) -> Loop:
        """A stop interrupts the run; the next run continues it."""
        return Loop("archive", self.run_once, rest=self._options.interval, interruptible=True)

    async def run_once(self) -> None:
        """Run the three parts in turn, because they share a lock. A part that fails does not stop the others."""
        await run_all(_unless_busy, (self._erase, self._archive, self._back_up))

    async def _erase(self) -> None:
        await resume_erasures(self._room, self._options)

    async def _archive(self) -> None:
        await run_archive(self._room, self._options, actor=ACTOR, clock=self._clock)

    async def _back_up(self) -> None:
        backups = BackupOptions.of(self._room.settings)
        await back_up_if_due(self._room, backups, actor=ACTOR, clock=self._clock)


async def _unless_busy(part: Callable[[], Awaitable[None]]) -> None:
    with suppress(ArchiveBusy):  # another process works on the archive
        await part()
