"""Crashes of PostgreSQL under load: `./dev chaos postgres [--rounds N]` ends with 1 if the ledger has a problem.

Two processes `postroom work` use a server through a proxy that crashes it at a chosen statement and moment. Clients
accept mail directly, and repeat each call under its idempotency key until it is answered. In each round the server
crashes once, recovers, and mail arrives again.
"""

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import asyncpg
from tests.support.agreement import disagreements
from tests.support.campaigns import a_campaign
from tests.support.chaos import ledger, received
from tests.support.crashing_proxy import UNFLUSHED, Crash, CrashingProxy, crashes_of
from tests.support.fleet import Fleet, say, sending_settings, workplace
from tests.support.forked import Forked
from tests.support.mail_ledger import MailLedger
from tests.support.moody_server import Moods, MoodyServer
from tests.support.patience import PATIENCE_S
from tests.support.smtp_server import Server, smtp_server

import postroom
from postroom.campaigns.service import start_campaign
from postroom.db.faults import DATABASE_ERRORS
from postroom.db.migrate import migrate
from postroom.db.pool import open_pool
from postroom.delivery.model import Lane
from postroom.embedded.data_directory import DataDirectory
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.errors import PostroomError
from postroom.runtime.log import configure_logging

ROOM = "postroom"
STATEMENTS = ("claim_due", "mark_started", "complete", "release", "recover_claims", "feed_campaign")
PACE_S = 0.05  # between two requests of one client
POLL_S = 0.05
FLOWING = 5  # mails that arrive before the next crash
BURST = 120  # mails of a burst: more than a worker starts at once, so that it has some to release
PEOPLE = 40  # recipients of a campaign
SETTINGS = {
    "POSTROOM_SMTP_CONNECTIONS": "8",
    "POSTROOM_LEASE": "4s",
    "POSTROOM_WORKER_BATCH": "60",
    "POSTROOM_WORKER_CHUNK": "5",
}
SLOWEST_S = 0.6  # mail is in flight when the server recovers
_UNANSWERED = (*DATABASE_ERRORS, PostroomError)
_IS_EXPIRED = "SELECT EXISTS (SELECT FROM claims WHERE expires_at <= now())"
_IS_FINISHED = """
    SELECT NOT EXISTS (SELECT FROM deliveries WHERE finished_at IS NULL) AND NOT EXISTS (SELECT FROM claims)
        AND NOT EXISTS (SELECT FROM campaigns WHERE status = 'active')
"""
_ARE_BACK = "SELECT count(*) >= 2 FROM workers WHERE seen_at > $1"  # both have renewed their leases


class CrashMissed(Exception):  # noqa: N818 - read as a sentence
    """The statement of a crash did not run."""


@dataclass
class Scene:
    """Everything that a round needs."""

    server: EmbeddedServer
    proxy: CrashingProxy
    sink: Server
    fleet: Fleet
    workers: list[Forked] = field(default_factory=list)
    acknowledged: dict[str, set[int]] = field(default_factory=dict)

    async def ask(self, step: Callable[[asyncpg.Connection], Awaitable[Any]]) -> Any:
        """Run a step on a new connection; repeat it until the server answers."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    connection = await asyncpg.connect(
                        self.server.find_url(), server_settings={"search_path": ROOM}, ssl=False
                    )
                    try:
                        return await step(connection)
                    finally:
                        connection.terminate()
                except _UNANSWERED:
                    await asyncio.sleep(POLL_S)

    async def accept(self, mails: Mapping[str, Lane]) -> None:
        """Accept a mail for each key in one transaction, repeated until it is answered."""

        async def step(connection: asyncpg.Connection) -> dict[str, int]:
            async with connection.transaction():
                return {key: await _send(connection, key, lane) for key, lane in mails.items()}

        for key, delivery in (await self.ask(step)).items():
            self.acknowledged.setdefault(key, set()).add(delivery)

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        """Wait for the server or the workers."""
        async with asyncio.timeout(2 * PATIENCE_S):
            while not await is_so():  # noqa: ASYNC110 - other processes change it
                await asyncio.sleep(POLL_S)

    async def is_true(self, question: str, *values: Any) -> bool:
        return bool(await self.ask(lambda connection: connection.fetchval(question, *values)))

    async def flows(self) -> None:
        """Wait until some mail has arrived."""
        enough = len(self.sink.messages) + FLOWING

        async def is_so() -> bool:
            return len(self.sink.messages) >= enough

        await self.until(is_so)

    def revive(self) -> None:
        """Start workers again that have ended, as a service manager does: none starts without its database."""
        self.workers = [self.fleet.start("work") if worker.poll() else worker for worker in self.workers]

    async def replace(self, with_signal: signal.Signals) -> None:
        """End the first worker, and start another."""
        worker = self.workers.pop(0)
        worker.send_signal(with_signal)
        self.workers.append(self.fleet.start("work"))
        await asyncio.to_thread(worker.wait, PATIENCE_S)


async def _send(connection: asyncpg.Connection, key: str, lane: Lane) -> int:
    return await postroom.send(
        connection, to=f"{key}@example.org", subject="Crash", text="Hello", lane=lane, idempotency_key=key
    )


async def run(crashes: Sequence[Crash], directory: Path, *, report: Callable[[str], None]) -> MailLedger:
    """Crash the server at each of these points, and return the ledger."""
    async with _prepared(directory) as scene:
        scene.workers += [scene.fleet.start("work"), scene.fleet.start("work")]
        async with _load(scene):
            for number, crash in enumerate(crashes, 1):
                report(f"round {number} of {len(crashes)}: {crash}")
                await _round(scene, number, crash)
        await scene.until(partial(scene.is_true, _IS_FINISHED))
        codes = await scene.fleet.stop()
        async with await open_pool(scene.server.find_url(), ROOM, size=1) as pool:
            differences = await disagreements(pool)
            entries = await ledger(pool)
        return MailLedger(scene.acknowledged, entries, received(scene.sink), differences, exit_codes=codes)


@asynccontextmanager
async def _prepared(directory: Path) -> AsyncIterator[Scene]:
    """A server with an empty room behind the proxy, which is started again after crashes, and an SMTP server."""
    data = directory / "data"
    moods = Moods(random.Random(), slowest_s=SLOWEST_S)
    async with (
        EmbeddedServer(data, ServerOptions(fsync=False, extra=UNFLUSHED)) as server,
        CrashingProxy(server, DataDirectory(data), "postroom.delivery", "postroom.campaigns") as proxy,
        smtp_server(kind=partial(MoodyServer, moods)) as sink,
    ):
        await migrate(server.url, ROOM)
        fleet = Fleet(directory, sending_settings(proxy.url, sink.port, **SETTINGS))
        restarts = asyncio.create_task(server.keep_running())
        try:
            yield Scene(server, proxy, sink, fleet)
        finally:
            fleet.kill()
            restarts.cancel()
            await asyncio.gather(restarts, return_exceptions=True)


@asynccontextmanager
async def _load(scene: Scene) -> AsyncIterator[None]:
    """Accept mail of every lane for as long as the block runs."""
    stop = asyncio.Event()

    async def accept(lane: Lane) -> None:
        for number in count():
            if stop.is_set():
                return
            await scene.accept({f"{lane}-{number}": lane})
            await asyncio.sleep(PACE_S)

    async with asyncio.TaskGroup() as group:
        for lane in Lane:
            group.create_task(accept(lane))
        try:
            yield
        finally:
            stop.set()


async def _round(scene: Scene, number: int, crash: Crash) -> None:
    """Bring the statement about, crash there, and wait until mail arrives again."""
    crashed = asyncio.create_task(_PROVOKE.get(crash.statement, _wait)(scene, number, crash))
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            await crashed
    except TimeoutError:
        raise CrashMissed(f"{crash}: the statement did not run") from None
    moment = await scene.ask(lambda connection: connection.fetchval("SELECT clock_timestamp()"))
    await scene.flows()

    async def are_back() -> bool:
        scene.revive()
        return await scene.is_true(_ARE_BACK, moment)

    await scene.until(are_back)


async def _wait(scene: Scene, _number: int, crash: Crash) -> None:
    """The load brings the statement about."""
    await scene.proxy.crash_at(crash).wait()


async def _feed(scene: Scene, number: int, crash: Crash) -> None:
    """A campaign is started; the crash may take the answer of the start."""
    people = [f"c{number}-{person}@example.org" for person in range(PEOPLE)]
    async with await open_pool(scene.server.find_url(), ROOM, size=1) as pool:
        campaign = await a_campaign(pool, people, name=f"Crash {number}")
        crashed = scene.proxy.crash_at(crash)
        with suppress(*DATABASE_ERRORS):
            await start_campaign(pool, campaign.id, actor="tests")
    if not await scene.is_true("SELECT status <> 'draft' FROM campaigns WHERE id = $1", campaign.id):
        async with await open_pool(scene.server.find_url(), ROOM, size=1) as pool:
            await start_campaign(pool, campaign.id, actor="tests")
    await crashed.wait()


async def _release(scene: Scene, number: int, crash: Crash) -> None:
    """A worker that has claimed a burst is stopped, and returns the mail that it has not started."""
    crashed = scene.proxy.crash_at(crash)
    for attempt in count():
        lane = random.choice(list(Lane))
        await scene.accept({f"burst-{number}-{attempt}-{mail}": lane for mail in range(BURST)})
        await scene.flows()
        await scene.replace(signal.SIGTERM)
        if crashed.is_set():
            return


async def _recover(scene: Scene, number: int, crash: Crash) -> None:
    """A worker is killed, and its leases expire."""
    await scene.replace(signal.SIGKILL)
    await scene.until(partial(scene.is_true, _IS_EXPIRED))
    await scene.proxy.crash_at(crash).wait()


_PROVOKE = {"feed_campaign": _feed, "release": _release, "recover_claims": _recover}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="./dev chaos postgres", description="Crash PostgreSQL under load.")
    parser.add_argument("--rounds", type=int, default=72, help="number of crashes (72: each point once)")
    parser.add_argument("--only", choices=STATEMENTS, action="append", help="crash at this statement only")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of all processes here")
    options = parser.parse_args()
    configure_logging("critical", "text")  # the crashes are expected
    crashes = list(islice(cycle(crashes_of(options.only or STATEMENTS)), options.rounds))
    with workplace("crashes", logs=options.logs) as directory:
        mail = asyncio.run(run(crashes, directory, report=say))
    for line in (*mail.lines(), *(problems := mail.problems())):
        say(line)
    say(f"{len(problems)} problems" if problems else "no loss, no silent duplicate, no difference between tables")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
