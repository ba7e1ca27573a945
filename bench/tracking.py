"""Opens and clicks: requests a second beside a bare pixel, how long one waits at a modest rate, and that none is lost.

    python -m bench.tracking             three rounds
    python -m bench.tracking --quick     one short round: does it run?

    bare     the same 43 bytes from the same server, nothing read and nothing stored
    open     the pixel: token verified, agent classified, recorded, written in batches; figures include the writing
    click    the link, likewise
    p99      opens at a steady 1,000 a second: how long the slowest hundredth waits

Every subject is a process of its own; the client is another, with 64 connections kept alive, on the same cores.
Targets: 8,000 opens a second, p99 below 20 ms, every answered hit in the database. Exits 1 if missed.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import uvloop

from bench.server import running_server
from bench.statements import read_statements
from postroom.db.room import open_room
from postroom.http.asgi import build_app
from postroom.runtime.endpoint import Receive, Scope, Send
from postroom.runtime.uvicorn_server import bind, serve
from postroom.settings import Settings
from postroom.tracking.buffer import EngagementBuffer
from postroom.tracking.maintenance import TrackingPartitions
from postroom.tracking.model import LinkSubject
from postroom.tracking.public import PIXEL, PublicLinks, link_site
from postroom.tracking.tokens import TokenSigner

SQL = read_statements(Path(__file__).with_suffix(".sql"))
SIGNER = TokenSigner(bytes(32), "", room="postroom")
AGENT = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36"
CONNECTIONS = 64
LEAST_OPENS = 8_000
SLOWEST_MS = 20.0
STEADY = 1_000


# ── subjects ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def bare(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        headers = [(b"content-type", b"image/gif"), (b"content-length", b"43"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PIXEL})


async def serve_until_stopped(app: object) -> None:
    """Says its port, answers until its input ends."""
    stop = asyncio.Event()
    with bind(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ready = lambda: print(port, flush=True)  # noqa: E731 - one line, once
        asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
        await serve(app, listener, stop, grace=timedelta(seconds=5), on_ready=ready)


async def serve_tracking(url: str) -> None:
    async with open_room(Settings(database_url=url)) as room:
        await TrackingPartitions(room.pool).run_once()
        buffer = EngagementBuffer(room.pool)
        running = asyncio.create_task(buffer.run())
        await serve_until_stopped(build_app(room, sites=[link_site(PublicLinks(SIGNER, buffer))]))
        buffer.stop()
        await running


# ── the client ──────────────────────────────────────────────────────────────────────────────────────────────────────


def requests(kind: str, count: int) -> list[bytes]:
    """Requests for as many different mails."""
    made = []
    for number in range(count):
        mark = LinkSubject(number % 10, number, f"person{number}@example.org")
        path = SIGNER.open_url(mark)
        if kind == "click":
            path = SIGNER.click_url(mark, f"https://shop.example/article/{number % 50}?from=mail")
        made.append(f"GET {path} HTTP/1.1\r\nHost: mail.example.com\r\nUser-Agent: {AGENT}\r\n\r\n".encode())
    return made


class Client(asyncio.Protocol):
    """One connection that repeats its request after each answer, or on demand."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._asked_at = 0.0
        self._answered: asyncio.Future[float] | None = None
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass

    def data_received(self, data: bytes) -> None:
        heard = self._heard + data
        # Our pixel ends in a semicolon, a redirect in an empty line; nothing else does in these answers.
        if not (heard.endswith(b"\r\n\r\n") and b" 302 " in heard[:16]) and not heard.endswith(b"\x00;"):
            self._heard = heard
            return
        self._heard = b""
        assert heard[9:12] in (b"200", b"302"), heard
        assert self._answered is not None
        self._answered.set_result(time.perf_counter() - self._asked_at)

    async def ask(self, request: bytes) -> float:
        """Seconds until the answer was here."""
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._asked_at = time.perf_counter()
        self._transport.write(request)
        return await self._answered

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


async def flood(port: int, kind: str, seconds: float) -> None:
    """As many requests as the server takes; prints how many, and how long it took."""
    clients = [await connect(port) for _ in range(CONNECTIONS)]
    made = requests(kind, 20_000)
    ends = time.perf_counter() + seconds
    counts = [0] * CONNECTIONS

    async def one(index: int, client: Client) -> None:
        number = index * 311
        while time.perf_counter() < ends:
            await client.ask(made[number % len(made)])
            number += 1
            counts[index] += 1

    started = time.perf_counter()
    await asyncio.gather(*(one(index, client) for index, client in enumerate(clients)))
    print(sum(counts), time.perf_counter() - started, flush=True)
    for client in clients:
        client.close()


async def steady(port: int, seconds: float) -> None:
    """A thousand a second, whether or not earlier ones are answered; prints the slowest hundredth in milliseconds."""
    clients = [await connect(port) for _ in range(CONNECTIONS)]
    free: asyncio.Queue[Client] = asyncio.Queue()
    for client in clients:
        free.put_nowait(client)
    made, took, tasks = requests("open", 5_000), [], set()

    async def one(request: bytes, due: float) -> None:
        client = await free.get()
        await client.ask(request)
        took.append(time.perf_counter() - due)
        free.put_nowait(client)

    started = time.perf_counter()
    for number in range(int(STEADY * seconds)):
        due = started + number / STEADY
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one(made[number % len(made)], due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    print(len(took), statistics.quantiles(took, n=100)[98] * 1000, statistics.median(took) * 1000, flush=True)
    for client in clients:
        client.close()


async def connect(port: int) -> Client:
    _transport, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


# ── the measurement ─────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def subject(*arguments: str) -> AsyncIterator[int]:
    """A serving process; its port. At the end it writes what it holds and leaves."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.tracking",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        yield int(await child.stdout.readline())
    finally:
        child.stdin.close()
        await child.wait()


async def client(*arguments: str) -> list[float]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.tracking", *arguments, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    assert child.returncode == 0, "the client failed"
    return [float(word) for word in said.split()]


class Findings:
    """The results of the rounds."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {}
        self.answered = {"open": 0, "click": 0}
        self.stored = {"open": 0, "click": 0}

    def add(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        return statistics.median(self.samples[name])


async def measure_all(*, rounds: int, seconds: float) -> Findings:
    findings = Findings()
    async with running_server() as arena:
        url = await arena.create_database("tracking")
        async with open_room(Settings(database_url=url), migrating=True) as room:
            for _ in range(rounds):
                async with subject("serve-bare") as port:
                    count, took = await client("flood", str(port), "open", str(seconds))
                    findings.add("bare", count / took)
                async with subject("serve", url) as port:
                    for kind in ("open", "click"):
                        count, took = await client("flood", str(port), kind, str(seconds))
                        findings.add(kind, count / took)
                        findings.answered[kind] += int(count)
                    count, slowest, usual = await client("steady", str(port), str(seconds))
                    findings.answered["open"] += int(count)
                    findings.add("p99", slowest)
                    findings.add("p50", usual)
            findings.stored["open"] = await room.pool.fetchval(SQL["count_opens"])
            findings.stored["click"] = await room.pool.fetchval(SQL["count_clicks"])
    return findings


def report(found: Findings) -> bool:
    """Print what was found; True if every promise was kept."""
    bare_rate = found.median("bare")
    for name in ("bare", "open", "click"):
        print(f"{name:<8}{found.median(name):>10,.0f}/s   {found.median(name) / bare_rate:.2f}× bare")
    slowest, usual = found.median("p99"), found.median("p50")
    print(f"p99     {slowest:>10.1f} ms   at {STEADY:,} opens a second; half within {usual:.1f} ms")
    for kind in ("open", "click"):
        print(f"stored  {found.stored[kind]:>10,} of {found.answered[kind]:,} answered {kind}s")
    is_complete = found.stored == found.answered
    return found.median("open") >= LEAST_OPENS and found.median("p99") < SLOWEST_MS and is_complete


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tracking", description="Opens and clicks.")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run?")
    quick = parser.parse_args().quick
    found = uvloop.run(measure_all(rounds=1 if quick else 3, seconds=0.5 if quick else 5.0))
    return 0 if report(found) or quick else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve-bare"]:
            uvloop.run(serve_until_stopped(bare))
        case ["serve", url]:
            uvloop.run(serve_tracking(url))
        case ["flood", port, kind, seconds]:
            uvloop.run(flood(int(port), kind, float(seconds)))
        case ["steady", port, seconds]:
            uvloop.run(steady(int(port), float(seconds)))
        case _:
            sys.exit(main())
