"""A process that works on the archive and can kill itself: `python -m tests.support.archive_process '{…}'`.

With `die_at` it kills itself with SIGKILL at the n-th occurrence of a step; otherwise it exits 0 when all is done.
"""

import asyncio
import resource
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from tests.support.doom import Doom
from tests.support.forked import run_module
from tests.support.sessions import sessions_end

from postroom.archive.model import ArchiveOptions, Month
from postroom.archive.restore import restore_month
from postroom.archive.service import run_archive
from postroom.backup.service import restore_backup
from postroom.db.room import Room, open_room
from postroom.embedded import binaries
from postroom.erasure.service import erase
from postroom.settings import Settings

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Orders:
    """The task of the process."""

    url: str
    folder: str
    now: datetime
    task: str = "run"  # or restore, erase, bring_back
    die_at: str | None = None
    occurrence: int = 1
    endpoint: str | None = None  # of a bucket; `folder` is then its URL
    pages: int = 2

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


async def run_to_its_end(orders: Orders) -> int:
    """Start a process and wait until it ends."""
    async with sessions_end(orders.url):  # a killed process held the archive's lock
        return (await run_module("tests.support.archive_process", orders.encode()))[0]


async def peak_kilobytes(orders: Orders) -> int:
    """Start an interpreter, wait until it ends, and return its peak memory; a fork would share memory."""
    command = [sys.executable, "-m", "tests.support.archive_process", orders.encode()]
    process = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return int(printed.splitlines()[-1])


async def work(orders: Orders) -> None:
    binaries.VERSION_TIMEOUT_S = 60
    doom = Doom(orders.die_at, orders.occurrence)
    place = None if orders.endpoint else Path(orders.folder) / "work"
    options = ArchiveOptions(
        url=orders.folder, endpoint=orders.endpoint, pages=orders.pages, batch_limit=50, work_dir=place
    )
    if orders.task == "bring_back":
        await restore_backup(orders.url, Path(orders.folder) / "room.backup", actor="tests", signal=doom)
        return
    async with open_room(Settings(database_url=orders.url, pool_size=3)) as room:
        await _perform(room, options, orders, doom)


async def _perform(room: Room, options: ArchiveOptions, orders: Orders, doom: Doom) -> None:
    if orders.task == "run":
        await run_archive(room, options, actor="tests", clock=lambda: orders.now, signal=doom)
    elif orders.task == "restore":
        month = Month.parse("attempts", "2030-01")
        await restore_month(room, options, month, attach=True, actor="tests", signal=doom)
    else:
        await erase(room, options, address="ann@example.org", actor="tests", signal=doom)


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Orders)))
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n")
