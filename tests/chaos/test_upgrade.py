"""The upgrade of a room of the last release, whose workers run from the source of its commit."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.support.agreement import disagreements
from tests.support.chaos import ledger, received
from tests.support.command_line import outcome
from tests.support.fleet import Fleet, sending_settings
from tests.support.forked import Forked
from tests.support.mail_ledger import MailLedger
from tests.support.moody_server import Moods, MoodyServer
from tests.support.patience import PATIENCE_S
from tests.support.releases import Release, ReleaseMissing, export_last_release
from tests.support.smtp_server import Server, smtp_server
from tests.support.soak import TIMES
from tests.support.upgrade import POLL_S, ROOM, Accepted, arrives, code_problems, connected, load

from postroom.db.pool import open_pool

SOME = 40  # mails that must arrive in each phase
_IS_FINISHED = """
    SELECT NOT EXISTS (SELECT FROM deliveries WHERE finished_at IS NULL) AND NOT EXISTS (SELECT FROM claims)
        AND NOT EXISTS (SELECT FROM campaigns WHERE status = 'active')
        AND NOT EXISTS (SELECT FROM accounts AS a
            WHERE NOT EXISTS (SELECT FROM deliveries AS d WHERE d.recipient_email = a.email))
"""
_IS_REGISTERED = "SELECT EXISTS (SELECT FROM processes WHERE pid = $1)"
_LET_OUT = "UPDATE deliveries SET next_attempt_at = now() WHERE next_attempt_at > now()"
_LET_TIME_PASS = "UPDATE processes SET seen_at = seen_at - interval '1 hour' WHERE pid = ANY($1)"
SETTINGS = {"POSTROOM_LEASE": "4s", "POSTROOM_WORKER_BATCH": "40", "POSTROOM_SMTP_CONNECTIONS": "8"}


@dataclass
class Scene:
    """Everything that a phase of the upgrade needs."""

    url: str
    old: Release
    fleet: Fleet  # of the present release
    sink: Server
    stack: AsyncExitStack

    async def start_old(self) -> asyncio.subprocess.Process:
        process = await self.stack.enter_async_context(self.old.running("work"))
        await self._registered(process.pid)
        return process

    async def start_new(self) -> Forked:
        process = self.fleet.start("work")
        await self._registered(process.pid)
        return process

    async def _registered(self, pid: int) -> None:
        """Wait until a worker has started: before, it does not know how to stop."""
        async with connected(self.url) as connection:
            while not await connection.fetchval(_IS_REGISTERED, pid):  # noqa: ASYNC110 - another process changes it
                await asyncio.sleep(POLL_S)

    async def migrate(self, *options: str) -> tuple[int, str]:
        code, _, errors = await outcome("migrate", "--no-backup", *options, settings=self.old.settings)
        return code, errors


async def test_room_of_the_last_release_is_upgraded_under_load(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old and new workers run side by side, are killed and replaced: nothing is lost, and no copy is hidden."""
    moods = Moods(Random(), slowest_s=0.3, deferred=0.02, taken_and_dropped=0.01)
    async with smtp_server(kind=partial(MoodyServer, moods)) as sink, AsyncExitStack() as stack:
        settings = sending_settings(database_url, sink.port, **SETTINGS)
        with _skipped_if_missing(capsys):
            old = await asyncio.to_thread(export_last_release, tmp_path / "last", settings)
        await _make_room(old, database_url)
        fleet = Fleet(tmp_path, settings)
        stack.callback(fleet.kill)
        scene = Scene(database_url, old, fleet, sink, stack)
        async with asyncio.timeout(PATIENCE_S * 5 * TIMES):
            async with load(database_url) as accepted:
                await _upgrade(scene)
            await _until_finished(database_url)
        codes = await fleet.stop()
        assert await _problems(database_url, accepted, sink, codes) == []
    assert accepted.deliveries


async def _upgrade(scene: Scene) -> None:
    """Migrate under load, run both releases side by side while workers of both are killed, end the old release."""
    doomed, last = await scene.start_old(), await scene.start_old()
    await arrives(scene.sink, SOME)
    code, errors = await scene.migrate()
    assert code == 0, errors
    killed = []
    for _ in range(TIMES):
        new = await scene.start_new()
        await arrives(scene.sink, SOME)
        doomed.kill()
        killed.append(doomed.pid)
        doomed = await scene.start_old()
        await arrives(scene.sink, SOME)
        await scene.start_new()
        new.send_signal(signal.SIGKILL)
        await arrives(scene.sink, SOME)
    code, errors = await scene.migrate("--after")
    assert (code, "Processes of an older release run" in errors) == (1, True), errors
    for process in (doomed, last):
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    async with connected(scene.url) as connection:
        await connection.execute(_LET_TIME_PASS, killed)
    code, errors = await scene.migrate("--after")
    assert code == 0, errors
    await arrives(scene.sink, SOME)


async def _make_room(old: Release, url: str) -> None:
    """Replace the room by one that the last release has made."""
    async with connected(url) as connection:
        await connection.execute(f"DROP SCHEMA {ROOM} CASCADE")
    code, said = await old.outcome("migrate")
    assert code == 0, said


async def _until_finished(url: str) -> None:
    """Wait until all mail has ended; deferred mail need not wait for its time."""
    async with connected(url) as connection:
        while not await connection.fetchval(_IS_FINISHED):
            await connection.execute(_LET_OUT)
            await asyncio.sleep(POLL_S)


async def _problems(url: str, accepted: Accepted, sink: Server, codes: list[int]) -> list[str]:
    async with await open_pool(url, ROOM, size=1) as pool:
        differences = [*await disagreements(pool), *await code_problems(pool, accepted, sink)]
        ended = [code for code in codes if code != -signal.SIGKILL]
        mail = MailLedger(accepted.deliveries, await ledger(pool), received(sink), differences, exit_codes=ended)
    return mail.problems()


@contextmanager
def _skipped_if_missing(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    try:
        yield
    except ReleaseMissing as error:
        with capsys.disabled():
            sys.stderr.write(f"\nNO UPGRADE WAS TESTED: {error}\n")
        pytest.skip(f"The source of the last release is missing: {error}")
