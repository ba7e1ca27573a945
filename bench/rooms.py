"""`python -m bench.rooms`: many rooms on several servers, one worker process.

    idle     transactions a second on all servers together, connections of each server, memory of the worker and of the
             server's sessions while all rooms sleep
    first    milliseconds from `send` in a sleeping room to the last byte of the mail at an SMTP sink; and those after
             the commit, because `send` on a connection that has not used the room is cold too
    quiet    the same in a room with a mail every 100 ms: alone, while another room of the server accepts a million bulk
             mails in batches, and while that room sends them

The servers are PostgreSQL clusters of this machine, fsync on. Making a thousand rooms takes minutes: `--data` keeps the
clusters for the next run, which migrates the rooms, and makes those again whose migrations were edited.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import asyncpg
import uvloop

from bench.postroom_process import ENTRY, MADE_UP_SECRET, running
from bench.sink import Sink, start_sink
from bench.workers import Command
from postroom.db.errors import MigrationChanged
from postroom.db.migrate import migrate
from postroom.db.pool import quote_identifier
from postroom.db.queries import load
from postroom.embedded.server import EmbeddedServer, ServerOptions

SETTLE_S = 60.0  # until the worker has found the rooms, listens to their channels, and they sleep
MEASURE_S = 30.0
QUIET_MAILS, QUIET_EVERY_S = 400, 0.1
BATCH = 500  # mails of one transaction of the busy room
PATIENCE_S = 30.0
QUIET, BUSY = "tenant_0000", "tenant_busy"  # on the first server

_QUERIES = load("bench", "rooms.sql")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rooms", description=__doc__.partition("\n")[0])
    parser.add_argument("--rooms", type=int, default=1000)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--first", type=int, default=60, help="sleeping rooms that get a mail")
    parser.add_argument("--bulk", type=int, default=1_000_000, help="mails of the busy room")
    parser.add_argument("--data", type=Path, help="keep the clusters here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as scratch:
        found = uvloop.run(measure(options, options.data or Path(scratch) / "data", Path(scratch)))
    print(json.dumps(found, indent=2))


async def measure(options: argparse.Namespace, data: Path, scratch: Path) -> dict[str, Any]:
    await make_rooms(data, options.rooms, options.servers)
    async with contextlib.AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(cluster(data / str(n), fsync=True)) for n in range(options.servers)]
        sink = stack.enter_context(start_sink(record=scratch / "mails", only="mail-"))
        process = stack.enter_context(running(worker(urls, sink)))
        await asyncio.sleep(SETTLE_S)
        found = {"rooms": options.rooms, "servers": options.servers, **await measure_idle(urls, process.pid)}
        report(found)
        first = await measure_first(urls, sink, options)
        found["first_ms"] = spread([mail.ms for mail in first])
        found["first_after_commit_ms"] = spread([mail.ms - mail.accepted_ms for mail in first])
        found["sessions_after_first_mb"] = [await sessions_mb(url) for url in urls]
        report(found)
        found |= await measure_quiet(urls[0], sink, options.bulk)
        found["memory_peak_mb"] = memory_mb(process.pid, "VmHWM")
        return found


def report(found: Mapping[str, Any]) -> None:
    """Show the results so far: a run takes minutes."""
    sys.stderr.write(f"{json.dumps(found)}\n")


# ── rooms and servers ─────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def cluster(directory: Path, *, fsync: bool) -> AsyncIterator[str]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    async with EmbeddedServer(directory, ServerOptions(fsync=fsync)) as server:
        yield server.url


async def make_rooms(data: Path, rooms: int, servers: int) -> None:
    """Create the rooms that are missing, on all servers at the same time; without fsync, which is not measured."""

    async def on_server(server: int) -> None:
        async with cluster(data / str(server), fsync=False) as url:
            if server == 0:
                await drop_room(url, BUSY)  # the last run left most of its mails waiting
                await migrate(url, BUSY)
            for number in range(server, rooms, servers):
                await make_room(url, room_name(number))

    began = time.monotonic()
    await asyncio.gather(*(on_server(server) for server in range(servers)))
    sys.stderr.write(f"{rooms} rooms on {servers} servers after {time.monotonic() - began:.0f} s\n")


async def make_room(url: str, name: str) -> None:
    """Create or complete a room; one of an earlier run whose migrations have been edited since is made again."""
    try:
        await migrate(url, name)
    except MigrationChanged:
        await drop_room(url, name)
        await migrate(url, name)


async def drop_room(url: str, name: str) -> None:
    async with connected(url) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {quote_identifier(name)} CASCADE")


def room_name(number: int) -> str:
    return f"tenant_{number:04}"


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def worker(urls: Sequence[str], sink: Sink) -> Command:
    servers = " ".join(f"s{number}={url}" for number, url in enumerate(urls))
    settings = {
        "POSTROOM_SERVERS": servers,
        "POSTROOM_TRANSPORT": "smtp",
        "POSTROOM_SMTP_RELAY": sink.url,
        "POSTROOM_SECRET_KEY": MADE_UP_SECRET,
        "POSTROOM_FROM": "Bench <bench@example.org>",
    }
    return Command([sys.executable, "-c", ENTRY, "work", "--rooms", "tenant_*"], settings)


# ── measurements ──────────────────────────────────────────────────────────────────────────────────────────────────


async def measure_idle(urls: Sequence[str], pid: int) -> dict[str, Any]:
    async def ask(name: str) -> list[int]:
        counts = []
        for url in urls:
            async with connected(url) as connection:
                counts.append(int((await _QUERIES[name].one(connection))["count"]))
        return counts

    before, cpu_s, began = sum(await ask("count_transactions")), cpu_of(pid), time.monotonic()
    most = await ask("count_connections")
    for _ in range(10):
        await asyncio.sleep(MEASURE_S / 10)
        most = [max(pair) for pair in zip(most, await ask("count_connections"), strict=True)]
    seconds = time.monotonic() - began
    return {
        "transactions_s": round((sum(await ask("count_transactions")) - before) / seconds, 1),
        "connections": most,
        "memory_mb": memory_mb(pid, "VmRSS"),
        "sessions_mb": [await sessions_mb(url) for url in urls],
        "worker_cpu": round((cpu_of(pid) - cpu_s) / seconds, 3),
    }


@dataclass(frozen=True)
class TimedMail:
    """The milliseconds of `send`, and those until the end of the mail at the sink."""

    accepted_ms: float
    ms: float


async def measure_first(urls: Sequence[str], sink: Sink, options: argparse.Namespace) -> list[TimedMail]:
    """One mail in each of some sleeping rooms, one room after the other."""
    found = []
    for number in range(0, options.rooms, max(1, options.rooms // options.first)):
        url = urls[number % options.servers]
        async with connected(url) as connection:
            found.append(await time_mail(connection, room_name(number), f"mail-first{number}@example.org", sink))
    return found


async def measure_quiet(url: str, sink: Sink, bulk: int) -> dict[str, Any]:
    async with connected(url) as connection, connected(url) as other:
        alone = await send_regularly(connection, "alone", sink)
        accepting = asyncio.create_task(send_bulk(other, bulk))
        beside_accepting = await send_regularly(connection, "accepting", sink)
        accepted_s, waiting = await accepting, await count_waiting(other)
        began = time.monotonic()
        beside_sending = await send_regularly(connection, "sending", sink)
        sent = waiting - await count_waiting(other)
        return {
            "quiet_ms": spread(alone),
            "quiet_beside_accepting_ms": spread(beside_accepting),
            "quiet_beside_sending_ms": spread(beside_sending),
            "bulk_accepted": f"{bulk} in {accepted_s:.0f} s",
            "bulk_waiting": waiting,
            "bulk_sent_per_s": round(sent / (time.monotonic() - began)),
        }


async def send_bulk(connection: asyncpg.Connection, mails: int) -> float:
    """Accept bulk mails in the busy room; returns the seconds."""
    began = time.monotonic()
    for _ in range(0, mails, BATCH):
        await _QUERIES.in_room("send_bulk", BUSY).one(connection, mails=BATCH)
    return time.monotonic() - began


async def count_waiting(connection: asyncpg.Connection) -> int:
    return int((await _QUERIES.in_room("count_bulk", BUSY).one(connection))["count"])


async def send_regularly(connection: asyncpg.Connection, name: str, sink: Sink) -> list[float]:
    found = []
    for number in range(QUIET_MAILS):
        found.append((await time_mail(connection, QUIET, f"mail-{name}{number}@example.org", sink)).ms)
        await asyncio.sleep(QUIET_EVERY_S)
    return found[5:]  # the first ones wake the room


async def time_mail(connection: asyncpg.Connection, room: str, recipient: str, sink: Sink) -> TimedMail:
    sent_at = time.monotonic()
    await _QUERIES.in_room("send", room).maybe(connection, recipient=recipient)
    accepted_ms = (time.monotonic() - sent_at) * 1000
    while time.monotonic() - sent_at < PATIENCE_S:
        await asyncio.sleep(0.02)  # the sink records the time; this poll only finds it
        for record in reversed(sink.recorded()):
            if record.recipients == (recipient,):
                return TimedMail(accepted_ms, (record.at - sent_at) * 1000)
    return TimedMail(accepted_ms, PATIENCE_S * 1000)


def spread(found: Sequence[float]) -> dict[str, float]:
    cut = quantiles(found, n=100, method="inclusive")
    return {"p50": round(cut[49], 1), "p99": round(cut[98], 1), "max": round(max(found), 1)}


async def sessions_mb(url: str) -> dict[str, float]:
    """Private memory of the server's processes for clients, all together and the largest."""
    async with connected(url) as connection:
        pids = [row["pid"] for row in await _QUERIES["list_sessions"].many(connection)]
    sizes = [private_mb(pid) for pid in pids]
    return {"count": len(sizes), "all": round(sum(sizes)), "largest": round(max(sizes, default=0))}


def private_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except FileNotFoundError:  # it ended meanwhile
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def memory_mb(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024, 1)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
