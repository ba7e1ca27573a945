"""Two worker hosts, one of them cut off under load: `./dev chaos two-hosts [--rounds N]` prints the ledger.

PostgreSQL listens on the address that the hosts reach: it must notice by itself that a host is gone, because a
transaction of that host may hold locks. Two processes `postroom work` run in network namespaces and share two sender
accounts, one with a daily limit and one with a pace, and the daily quota of the room. In each round one host loses its
links, or only the one to the database; the other takes its mail over after the lease, and the host comes back while
mail is left.
"""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import asyncpg
from tests.support.builders import a_mail, accepted
from tests.support.chaos import received
from tests.support.command_line import environment
from tests.support.failover_ledger import Delivery, read_deliveries
from tests.support.namespaces import HOSTS, Link, TwoHosts
from tests.support.patience import PATIENCE_S
from tests.support.senders import an_account
from tests.support.smtp_server import Server, smtp_server

from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.db.url import joined
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.limits.service import set_room_limits
from postroom.runtime.log import configure_logging

ROOM = "postroom"
PACED, LIMITED = "paced@example.org", "limited@example.org"
DELAY_MS = 100
FLIGHT = 8  # mails that may arrive later than they started: one per connection of an account
POLL_S = 0.1
WAITED_S = PATIENCE_S
MEMORY = Path("/dev/shm")
CUTS: tuple[tuple[Link, ...], ...] = (tuple(Link), (Link.DATABASE,))


class WorkerEnded(Exception):  # noqa: N818 - read as a sentence
    """A worker process has ended before the run."""


@dataclass(frozen=True)
class Plan:
    """The size of a run."""

    rounds: int
    lease_s: int
    mails: int  # per round
    limit: int  # of the account with a daily limit and no pace: less than a round has, so that mail is left at the cut
    kept: int  # mails beyond the daily quota of the room

    @property
    def accepted(self) -> int:
        return self.rounds * self.mails

    @property
    def quota(self) -> int:
        return self.accepted - self.kept


@dataclass
class Round:
    """One cut: which host lost which links, and the seconds until its claims were taken over and it worked again."""

    host: str
    links: tuple[Link, ...]
    takeover_s: float = 0.0
    back_s: float = 0.0
    is_taken_over: bool = False
    is_back: bool = False

    def problems(self) -> Iterator[str]:
        if not self.is_taken_over:
            yield f"host {self.host} was cut off, and its claims were not taken over within {self.takeover_s:.0f} s"
        if not self.is_back:
            yield f"host {self.host} was joined, and did not work again within {self.back_s:.0f} s"


@dataclass
class Ledger:
    """The result of a run. `problems` are violations; a run without them has passed."""

    plan: Plan
    rounds: list[Round]
    deliveries: list[Delivery]
    copies: Counter[int]
    times: dict[str, list[float]]  # when mail of each account arrived
    counted: dict[str, int]  # daily_sent of each account
    paused: dict[str, str]  # accounts that their health paused, and the reason
    used: int  # mails counted against the room
    exit_codes: list[int] = field(default_factory=list)

    @property
    def repeated(self) -> list[Delivery]:
        return [each for each in self.deliveries if self.copies[each.id] > 1]

    def problems(self) -> list[str]:
        ends = [f"a worker ended with {code} after SIGTERM" for code in self.exit_codes if code]
        rounds = [problem for this in self.rounds for problem in this.problems()]
        return [*rounds, *self._states(), *self._copies(), *self._quotas(), *self._pace(), *ends]

    def _states(self) -> Iterator[str]:
        if len(self.deliveries) != self.plan.accepted:
            yield f"{self.plan.accepted} deliveries were accepted, {len(self.deliveries)} are in the database"
        for each in self.deliveries:
            copies = self.copies[each.id]
            is_right = copies > 0 if each.state == "sent" else each.state == "queued" and copies <= each.ambiguous
            if not is_right:
                yield f"delivery {each.id} is {each.state} and was received {copies} times"
        waiting = sum(1 for each in self.deliveries if each.state == "queued")
        if waiting < self.plan.kept:
            yield f"{waiting} deliveries wait; the quota of the room keeps {self.plan.kept}"
        if waiting and self.used < self.plan.quota:
            yield f"{waiting} deliveries wait, and the room has counted {self.used} of {self.plan.quota} mails"

    def _copies(self) -> Iterator[str]:
        for each in self.repeated:
            if self.copies[each.id] > each.sent + each.ambiguous:
                yield f"delivery {each.id} was received {self.copies[each.id]} times without an ambiguous attempt"

    def _quotas(self) -> Iterator[str]:
        for email, times in self.times.items():
            if len(times) > self.counted[email]:
                yield f"{email} sent {len(times)} mails and has counted {self.counted[email]}"
        if len(self.times[LIMITED]) > self.plan.limit:
            yield f"{LIMITED} sent {len(self.times[LIMITED])} mails; its daily limit is {self.plan.limit}"
        if self.used > self.plan.quota or len(self.copies) > self.plan.quota:
            yield f"the room sent {len(self.copies)} mails and counted {self.used}; its quota is {self.plan.quota}"

    def _pace(self) -> Iterator[str]:
        """Between arrivals of n mails at least n - 1 delays, but for those that were on their way for a while."""
        times = self.times[PACED]
        for first in range(len(times)):
            for last in range(first + FLIGHT + 1, len(times)):
                least_s = (last - first - FLIGHT) * DELAY_MS / 1000
                if times[last] - times[first] < least_s:
                    yield f"{last - first + 1} mails of {PACED} arrived within {times[last] - times[first]:.2f} s"
                    return

    def lines(self) -> Iterator[str]:
        """The ledger for people."""
        yield "round  host  cut              taken over  back at work"
        for number, this in enumerate(self.rounds, 1):
            links = "database" if this.links == (Link.DATABASE,) else "database, mail"
            yield f"{number:<6} {this.host:<5} {links:<16} {this.takeover_s:>6.1f} s    {this.back_s:>6.1f} s"
        waiting = sum(1 for each in self.deliveries if each.state == "queued")
        doubtful = sum(1 for each in self.deliveries if each.state == "queued" and each.ambiguous)
        yield f"deliveries: {len(self.deliveries)} accepted, {len(self.copies)} received"
        yield f"waiting for the quota: {waiting}, {doubtful} of them for a retry after an ambiguous attempt"
        yield f"quota of the room: {self.used} of {self.plan.quota} mails counted"
        yield f"{LIMITED}: {len(self.times[LIMITED])} received, {self.counted[LIMITED]} counted of {self.plan.limit}"
        yield f"{PACED}: {len(self.times[PACED])} received, at least {DELAY_MS} ms between starts"
        for email, reason in self.paused.items():
            yield f"{email} is paused: {reason}"
        yield f"received more than once: {len(self.repeated)}"
        for each in self.repeated:
            why = "lease takeover" if each.taken_over else "ambiguous"
            yield f"  delivery {each.id}: {self.copies[each.id]} copies, {why}"


class Forwarder:
    """Accepts on an address that the hosts reach, and passes bytes on to a port of loopback."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self._port = address, port
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, self.address, 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        pumps = [asyncio.create_task(_pump(*pair)) for pair in ((reader, there_writer), (there_reader, writer))]
        self._tasks.update(pumps)
        await asyncio.wait(pumps)
        self._tasks.difference_update(pumps)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@dataclass
class Scene:
    """Everything that a round needs."""

    plan: Plan
    network: TwoHosts
    pool: Pool
    sink: Server
    workers: dict[str, asyncio.subprocess.Process]

    def check_alive(self) -> None:
        """Raise if a worker has ended: waiting for its work would take minutes."""
        for host, worker in self.workers.items():
            if worker.returncode is not None:
                raise WorkerEnded(f"The worker on host {host} has ended with {worker.returncode}.")


async def run(plan: Plan, directory: Path, *, report: Callable[[str], None]) -> Ledger:
    """Cut one host off in each round, and return the ledger."""
    async with _prepared(plan, directory) as scene:
        await _until(scene, lambda: _are_ready(scene))
        rounds: list[Round] = []
        for host, links in islice(zip(cycle(HOSTS), cycle(CUTS), strict=False), plan.rounds):
            report(
                f"round {len(rounds) + 1} of {plan.rounds}: host {host} loses {', '.join(link.name for link in links)}"
            )
            rounds.append(await _round(scene, Round(host, links)))
        await _drain(scene)
        used = await _used(scene)  # before the workers stop: they return the mails that they took and did not send
        codes = await _stopped(scene)
        return await _read(scene, rounds, codes, used)


@asynccontextmanager
async def reachable_room(network: TwoHosts, directory: Path) -> AsyncIterator[tuple[str, str]]:
    """A migrated room on a server of its own; yields its URL here and the one for the hosts."""
    address = network.addresses[Link.DATABASE]
    options = ServerOptions(fsync=False, extra=(("listen_addresses", f"127.0.0.1,{address}"),))
    async with EmbeddedServer(directory / "data", options) as server:
        await asyncio.to_thread(_admit, directory / "data" / "postgres" / "pg_hba.conf", network.network)
        admin = await asyncpg.connect(server.admin_url)
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()
        await migrate(server.url, ROOM)
        parts = urlsplit(server.url)
        there = parts._replace(netloc=parts.netloc.replace("127.0.0.1", address), query="sslmode=disable")
        yield server.url, joined(there)


def _admit(rules: Path, network: str) -> None:
    with rules.open("a") as file:
        file.write(f"host all postroom {network} scram-sha-256\n")


@asynccontextmanager
async def _prepared(plan: Plan, directory: Path) -> AsyncIterator[Scene]:
    async with (
        TwoHosts() as network,
        smtp_server() as sink,
        reachable_room(network, directory) as (url, url_there),
        await open_pool(url, ROOM, size=4) as pool,
    ):
        mail = Forwarder(network.addresses[Link.MAIL], sink.port)
        columns = {"smtp_host": mail.address, "smtp_port": await mail.start()}
        await an_account(pool, PACED, send_delay_ms=DELAY_MS, daily_limit=1_000_000, **columns)
        await an_account(pool, LIMITED, daily_limit=plan.limit, **columns)
        await set_room_limits(pool, {"daily_quota": plan.quota}, actor="cli:two-hosts")
        settings = _settings(url_there, plan)
        workers = {host: await start_worker(network, host, settings, directory) for host in HOSTS}
        try:
            yield Scene(plan, network, pool, sink, workers)
        finally:
            for worker in workers.values():
                if worker.returncode is None:
                    worker.kill()
                await worker.wait()
            await mail.stop()


def _settings(url: str, plan: Plan) -> dict[str, str]:
    return {
        "POSTROOM_DATABASE_URL": url,
        "POSTROOM_DATABASE_TIMEOUT": f"{plan.lease_s}s",
        "POSTROOM_SECRET_KEY": "0" * 64,
        "POSTROOM_TRANSPORT": "senders",
        "POSTROOM_SENDERS_ALLOW_PRIVATE": "true",
        "POSTROOM_FROM": "post@example.org",
        "POSTROOM_PUBLIC_URL": "https://post.example.org",
        "POSTROOM_LEASE": f"{plan.lease_s}s",
        "POSTROOM_LOG_FORMAT": "json",
    }


async def start_worker(
    network: TwoHosts, host: str, settings: dict[str, str], directory: Path
) -> asyncio.subprocess.Process:
    with (directory / f"work-{host}.log").open("w") as log:
        return await asyncio.create_subprocess_exec(
            *network.inside(host),
            *(sys.executable, "-m", "postroom.cli", "work"),
            env=environment(**settings),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


async def _round(scene: Scene, this: Round) -> Round:
    """Accept mail, cut a host while it has claims, wait for the takeover, join it and wait until it claims again."""
    before = len(scene.sink.messages)
    await accepted(scene.pool, *(a_mail(f"a{n}@example.org") for n in range(scene.plan.mails)))
    await _until(scene, lambda: _has_received(scene, before + scene.plan.mails // 10))
    await _until(scene, lambda: _has_claims(scene, this.host))
    await scene.network.cut(this.host, this.links)
    cut_at = time.monotonic()
    this.is_taken_over = await _until(scene, lambda: _is_taken_over(scene, this.host))
    this.takeover_s = time.monotonic() - cut_at
    await scene.network.join(this.host, this.links)
    joined_at, joined_time = time.monotonic(), await scene.pool.fetchval("SELECT clock_timestamp()")
    this.is_back = await _until(scene, lambda: _was_seen_after(scene, this.host, joined_time))
    this.back_s = time.monotonic() - joined_at
    return this


async def _are_ready(scene: Scene) -> bool:
    """True if both workers are registered: otherwise one of them could send everything before the other starts."""
    pids = [worker.pid for worker in scene.workers.values()]
    return bool(await scene.pool.fetchval("SELECT count(*) = 2 FROM workers WHERE pid = ANY($1)", pids))


async def _has_received(scene: Scene, count: int) -> bool:
    return len(scene.sink.messages) > count


async def _has_claims(scene: Scene, host: str) -> bool:
    return bool(await scene.pool.fetchval(_CLAIMS, scene.workers[host].pid))


async def _is_taken_over(scene: Scene, host: str) -> bool:
    return not await _has_claims(scene, host)


_CLAIMS = "SELECT EXISTS (SELECT FROM claims AS c JOIN workers AS w ON w.id = c.worker_id WHERE w.pid = $1)"


async def _was_seen_after(scene: Scene, host: str, moment: object) -> bool:
    query = "SELECT EXISTS (SELECT FROM workers WHERE pid = $1 AND seen_at > $2)"
    return bool(await scene.pool.fetchval(query, scene.workers[host].pid, moment))


async def _drain(scene: Scene) -> None:
    """Wait until the mail is sent. A busy machine may take long: give up when no mail has arrived for `WAITED_S`."""
    arrived = -1
    while arrived < len(scene.sink.messages):
        arrived = len(scene.sink.messages)
        if await _until(scene, lambda: _is_drained(scene)):
            return


async def _is_drained(scene: Scene) -> bool:
    """True if nothing is in flight, and all mail was sent or the quota of the room is used up."""
    row = await scene.pool.fetchrow(
        "SELECT count(*) FILTER (WHERE state = 'sending') AS sending,"
        " count(*) FILTER (WHERE state = 'queued') AS waiting,"
        " coalesce((SELECT day_used FROM allowances WHERE holder = 'sent'), 0) AS used FROM deliveries"
    )
    return not row["sending"] and (not row["waiting"] or row["used"] >= scene.plan.quota)


async def _stopped(scene: Scene) -> list[int]:
    for worker in scene.workers.values():
        worker.terminate()
    return [await asyncio.wait_for(worker.wait(), PATIENCE_S) for worker in scene.workers.values()]


async def _used(scene: Scene) -> int:
    return int(await scene.pool.fetchval("SELECT coalesce(sum(day_used), 0) FROM allowances WHERE holder = 'sent'"))


async def _read(scene: Scene, rounds: Sequence[Round], codes: Sequence[int], used: int) -> Ledger:
    times: dict[str, list[float]] = {PACED: [], LIMITED: []}
    for message in scene.sink.messages:
        times[message.sender].append(message.at)
    accounts = await scene.pool.fetch("SELECT email, daily_sent, status, status_reason FROM sender_accounts")
    return Ledger(
        plan=scene.plan,
        rounds=list(rounds),
        deliveries=await read_deliveries(scene.pool),
        copies=received(scene.sink),
        times=times,
        counted={row["email"]: row["daily_sent"] for row in accounts},
        paused={row["email"]: row["status_reason"] or "" for row in accounts if row["status"] == "paused"},
        used=used,
        exit_codes=list(codes),
    )


async def _until(scene: Scene, is_so: Callable[[], Awaitable[bool]]) -> bool:
    """Wait for work of other processes; False if it was not done in time."""
    ends_at = time.monotonic() + WAITED_S
    while not await is_so():
        scene.check_alive()
        await asyncio.sleep(POLL_S)
        if time.monotonic() > ends_at:
            return False
    return True


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="./dev chaos two-hosts", description="Cut a worker host off under load.")
    parser.add_argument("--rounds", type=int, default=4, help="number of cuts (4)")
    rounds = parser.parse_args().rounds
    configure_logging("error", "text")
    plan = Plan(rounds=rounds, lease_s=10, mails=300, limit=100, kept=20)
    in_memory = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="postroom-two-hosts-", dir=in_memory) as directory:
        os.environ.setdefault("POSTROOM_DATA_DIR", f"{directory}/unused")
        ledger = asyncio.run(run(plan, Path(directory), report=_say))
    for line in (*ledger.lines(), *(problems := ledger.problems())):
        _say(line)
    _say(f"{len(problems)} problems" if problems else "no loss, no unexplained duplicate, no quota or pace exceeded")
    return 1 if problems else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
