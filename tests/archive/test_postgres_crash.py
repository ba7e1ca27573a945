"""PostgreSQL crashes during an archive run: no row is lost or duplicated, and the next run finishes the work."""

import asyncio
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest
from tests.archive.test_kill import LATE, OLD, YOUNG, fill
from tests.support.archive import archived_ids, delivery_ids, options_for, run
from tests.support.crashing_proxy import UNFLUSHED, Crash, CrashingProxy, Moment, Victim, with_database
from tests.support.patience import PATIENCE_S
from tests.support.soak import TIMES

from postroom.archive.model import SegmentState
from postroom.archive.service import list_segments, verify_archive
from postroom.db.faults import DATABASE_ERRORS
from postroom.db.migrate import migrate
from postroom.db.room import open_room
from postroom.embedded.data_directory import DataDirectory
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.errors import PostroomError
from postroom.settings import Settings

ROOM = "postroom"
STATEMENTS = (
    "ensure_partitions",
    "open_segments",
    "use_store",
    "mark_exported",
    "mark_verified",
    "detach_partition",
    "drop_source",
    "open_late_segment",
    "collect_late_rows",
    "mark_collected",
)
"""Those of a run that change the room, in their order."""
CHOSEN = STATEMENTS if TIMES > 1 else ("detach_partition", "collect_late_rows")


@pytest.mark.parametrize("moment", [Moment.RUNNING, Moment.COMMITTED])
async def test_a_run_that_a_crash_of_postgres_interrupts_is_finished_by_the_next(
    server_directory: Path, tmp_path: Path, moment: Moment
) -> None:
    """PostgreSQL crashes at one statement of a run; afterwards every old row is in one verified file and no table."""
    home = server_directory / f"archive-{moment.name}"
    async with (
        EmbeddedServer(home, ServerOptions(fsync=False, extra=UNFLUSHED)) as server,
        CrashingProxy(server, DataDirectory(home), "postroom.archive") as proxy,
    ):
        for statement in CHOSEN:
            url = await _new_database(server, statement)
            async with open_room(Settings(database_url=url)) as room:
                await fill(room)
            folder = tmp_path / statement
            crashed = proxy.crash_at(Crash(statement, moment, Victim.BACKEND))
            with pytest.raises((*DATABASE_ERRORS, PostroomError)):
                async with open_room(Settings(database_url=proxy.url_of(statement))) as room:
                    await run(room, options_for(folder))
            await asyncio.wait_for(crashed.wait(), PATIENCE_S)
            await _check(url, folder)


async def _new_database(server: EmbeddedServer, name: str) -> str:
    """The URL of a database with a room."""
    connection = await asyncpg.connect(server.find_url())
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    url = with_database(server.find_url(), name)
    await migrate(url, ROOM)
    return url


async def _check(url: str, folder: Path) -> None:
    """Run the archive again, and compare rows, files and records."""
    await _recovered(url)
    async with open_room(Settings(database_url=url)) as room:
        options = options_for(folder)
        await run(room, options)
        assert archived_ids(folder) == [*OLD, *LATE]
        assert await delivery_ids(room.pool) == list(YOUNG)
        segments = await list_segments(room.pool)
        assert {segment.state for segment in segments} == {SegmentState.ARCHIVED}
        assert sum(segment.rows or 0 for segment in segments) == len(OLD) + len(LATE)
        assert [finding async for finding in verify_archive(room.pool, options) if not finding.is_good] == []


async def _recovered(url: str) -> None:
    """Wait until the server accepts connections again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(*DATABASE_ERRORS):
                connection = await asyncpg.connect(url)
                await connection.close()
                return
