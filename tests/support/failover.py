"""Failovers under load: `./dev chaos failover [--rounds N]` prints the ledger and exits with 1 if it has a problem.

Real processes (`postroom serve`, two of `postroom work`) use two PostgreSQL servers by a URL with both hosts, or with
`--one-address` by one that moves. In each round the primary fails, one worker gets SIGTERM while there is no primary,
work resumes on the other server, and the old primary rejoins as its standby.
"""

import argparse
import asyncio
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle, islice
from pathlib import Path

from tests.support.chaos import received
from tests.support.failover_ledger import (
    GRACE,
    Ledger,
    Round,
    read_deliveries,
    read_numbers,
    read_published,
)
from tests.support.failover_load import COUNTED, ROOM, Acknowledged, load
from tests.support.fleet import Fleet, say, sending_settings, workplace
from tests.support.forked import Forked
from tests.support.moving_address import MovingAddress
from tests.support.patience import PATIENCE_S
from tests.support.patroni import POLL_S, Failure, PatroniCluster
from tests.support.ports import free_port
from tests.support.smtp_server import Server, smtp_server

from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.http.service import create_key
from postroom.outbox.model import Topic
from postroom.outbox.topics import create_topic
from postroom.runtime.log import configure_logging

ACTOR = "cli:failover"
_DELIVERY = re.compile(rb"^Message-ID:\s*<pr\.(\d+)\.", re.MULTILINE)


@dataclass
class Scene:
    """Everything that a round needs."""

    cluster: PatroniCluster
    sink: Server
    fleet: Fleet
    known: Acknowledged
    worker: Forked  # the one that is stopped and replaced

    def resumed(self, start: float) -> dict[str, float | None]:
        """When each kind of work was first done after this moment."""
        arrived: dict[int, float] = {}
        for message in self.sink.messages:
            if message.at > start and (match := _DELIVERY.search(message.content)):
                arrived.setdefault(int(match[1]), message.at)
        accepted = {each for each, at in self.known.deliveries.items() if at > start}
        appended = {each for each, at in self.known.events.items() if at > start}
        published = (each.at for each in read_published(self.fleet.logs()) if each.position in appended)
        return {
            "API": _first(self.known.over_http, start),
            "transaction": _first(self.known.in_transaction, start),
            "events": _first(self.known.events, start),
            "worker": min((at for each, at in arrived.items() if each in accepted), default=None),
            "outbox": next(published, None),
        }


def _first(times: dict[int, float], start: float) -> float | None:
    return min((at for at in times.values() if at > start), default=None)


async def run(
    cluster: PatroniCluster,
    directory: Path,
    failures: Sequence[Failure],
    *,
    lease: str,
    report: Callable[[str], None],
    grace: timedelta = GRACE,
) -> Ledger:
    """Fail the primary once for each of `failures`, and return the ledger."""
    async with _prepared(cluster, directory, lease, grace) as (sink, fleet, pool, key):
        fleet.start("serve")
        fleet.start("work")
        async with load(cluster.url, fleet.api, key) as known:
            scene = Scene(cluster, sink, fleet, known, fleet.start("work"))
            rounds = []
            for number, failure in enumerate(failures, 1):
                report(f"round {number} of {len(failures)}: {failure}")
                rounds.append(await _round(scene, failure))
        await _drained(pool, fleet)
        codes = await fleet.stop()
        return Ledger(
            rounds=rounds,
            acknowledged=known,
            deliveries=await read_deliveries(pool),
            orders={row["number"] for row in await pool.fetch("SELECT number FROM public.orders")},
            copies=received(sink),
            numbers=await read_numbers(pool),
            published=read_published(fleet.logs()),
            exit_codes=codes,
        )


@asynccontextmanager
async def _prepared(
    cluster: PatroniCluster, directory: Path, lease: str, grace: timedelta
) -> AsyncIterator[tuple[Server, Fleet, Pool, str]]:
    """Servers with an empty room, an SMTP server, and processes that are yet to be started."""
    async with cluster, smtp_server() as sink:
        await migrate(cluster.url, ROOM)
        async with await open_pool(cluster.all_hosts, ROOM, size=2, timeout=timedelta(seconds=PATIENCE_S)) as pool:
            await pool.execute("CREATE TABLE public.orders (number int PRIMARY KEY)")
            key, _ = await create_key(pool, "failover", scopes=["*"], actor=ACTOR)
            await create_topic(
                pool, Topic(name="counted", types=(COUNTED,)), publishers=["log"], from_now=False, actor=ACTOR
            )
            fleet = Fleet(directory, _settings(cluster.url, sink.port, lease, grace))
            try:
                yield sink, fleet, pool, key
            finally:
                fleet.kill()


def _settings(url: str, smtp_port: int, lease: str, grace: timedelta) -> dict[str, str]:
    return sending_settings(
        url,
        smtp_port,
        POSTROOM_HTTP_ADDR=f"127.0.0.1:{free_port()}",
        POSTROOM_LEASE=lease,
        POSTROOM_SHUTDOWN_GRACE=f"{grace.total_seconds():g}s",
    )


async def _round(scene: Scene, failure: Failure) -> Round:
    primary = await scene.cluster.replicated()
    await _flows(scene, time.time())
    this = Round(failure, failed_at=scene.cluster.fail(primary, failure))
    stopping = asyncio.create_task(_stop(scene.worker, this))
    this.promoted_at = await scene.cluster.promoted(primary)
    await stopping
    scene.worker = scene.fleet.start("work")
    this.resumed = await _flows(scene, this.promoted_at)
    scene.cluster.revive(primary, failure)
    await scene.cluster.replicated()
    this.rejoined_at = time.time()
    return this


async def _stop(worker: Forked, this: Round) -> None:
    """Stop a worker while there is no primary."""
    started = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    this.exit_code = await asyncio.to_thread(worker.wait, PATIENCE_S)
    this.stopped_s = time.monotonic() - started


async def _flows(scene: Scene, start: float) -> dict[str, float | None]:
    """Wait until every kind of work was done after this moment; a kind that is still missing then has None."""
    await _until(lambda: None not in scene.resumed(start).values())
    return scene.resumed(start)


async def _drained(pool: Pool, fleet: Fleet) -> None:
    """Wait until every delivery is finished and every event is published; what is missing then is in the ledger."""
    ends_at = time.monotonic() + 2 * PATIENCE_S
    while await pool.fetchval("SELECT EXISTS (SELECT FROM deliveries WHERE state NOT IN ('sent', 'dead_letter'))"):
        await asyncio.sleep(POLL_S)
        if time.monotonic() > ends_at:
            break
    numbers = await read_numbers(pool)
    await _until(lambda: numbers.keys() <= {each.position for each in read_published(fleet.logs())})


async def _until(is_so: Callable[[], bool]) -> None:
    """Wait for work of other processes; a condition that never holds shows in the ledger."""
    ends_at = time.monotonic() + PATIENCE_S
    while not is_so():
        await asyncio.sleep(POLL_S)
        if time.monotonic() > ends_at:
            return


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="./dev chaos failover", description="Fail over under load.")
    parser.add_argument("--rounds", type=int, default=5, help="number of failovers (5)")
    parser.add_argument(
        "--one-address", action="store_true", help="a URL with one host, which moves to the new primary"
    )
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of Patroni and of all processes here")
    options = parser.parse_args()
    configure_logging("error", "text")  # the interruptions of this process's own connections are expected
    with workplace("failover", logs=options.logs) as directory:
        failures = list(islice(cycle(Failure), options.rounds))
        cluster = (MovingAddress if options.one_address else PatroniCluster)(directory)
        ledger = asyncio.run(run(cluster, directory, failures, lease="30s", report=say))
    for line in (*ledger.lines(), *(problems := [*ledger.problems(), *ledger.slow()])):
        say(line)
    say(f"{len(problems)} problems" if problems else "no loss, no unexplained duplicate, no skipped event")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
