"""A proxy before PostgreSQL that crashes the server at a chosen statement of an unmodified process.

It follows the messages of each session, and so knows which statement runs, when it has committed, and the process id
of the backend. A crash is a backend killed by SIGKILL, after which PostgreSQL ends all sessions and recovers, or the
postmaster killed. An answer can be withheld from the client, or be passed on before the crash.
"""

import asyncio
import os
import random
import signal
import struct
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import asyncpg
import psutil

from postroom.db.queries import load
from postroom.db.url import hosts_of, joined
from postroom.embedded.data_directory import DataDirectory
from postroom.embedded.server import EmbeddedServer

LENGTH = struct.Struct("!i")
POLL_S = 0.005
RUNS_AT_MOST_S = 0.005  # a statement of a few mails takes less
UNFLUSHED = (("synchronous_commit", "on"), ("wal_writer_delay", "10s"))
"""Settings of the server under which an unflushed commit stays unflushed until a later one flushes it too."""
_FLUSH = "SELECT pg_logical_emit_message(true, 'tests', '')"  # its commit flushes the log of all earlier ones
# Afterwards the next value of a sequence is logged, and lost with its transaction; usually 32 are logged ahead.
_LOG_NEXT_VALUES = "CHECKPOINT"
_IDLE = b"I"  # the state of a session between two transactions


class Moment(StrEnum):
    """The moment of a crash."""

    BEFORE = "before it runs"
    RUNNING = "while it runs"
    COMMITTED = "after its commit, before the answer"
    ANSWERED = "after the answer"


_AFTERWARDS = (Moment.COMMITTED, Moment.ANSWERED)


class Victim(StrEnum):
    """The killed process."""

    BACKEND = "backend"
    POSTMASTER = "postmaster"


@dataclass(frozen=True)
class Crash:
    """One crash. `is_flushed`: the commit is on disk before it."""

    statement: str
    moment: Moment
    victim: Victim
    is_flushed: bool = False

    def __str__(self) -> str:
        disk = "" if self.moment not in _AFTERWARDS else ", flushed" if self.is_flushed else ", unflushed"
        return f"{self.statement}, {self.moment}{disk}: {self.victim}"


def crashes_of(statements: Sequence[str]) -> list[Crash]:
    """Every crash of these statements."""
    early = [(moment, False) for moment in (Moment.BEFORE, Moment.RUNNING)]
    late = [(moment, is_flushed) for moment in _AFTERWARDS for is_flushed in (False, True)]
    return [
        Crash(statement, moment, victim, is_flushed)
        for victim in Victim
        for moment, is_flushed in (*early, *late)
        for statement in statements
    ]


def with_database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return joined(urlsplit(url)._replace(path=f"/{name}"))


class CrashingProxy:
    """Forwards sessions to an embedded server, and crashes it once for each `crash`."""

    def __init__(self, server: EmbeddedServer, data_directory: DataDirectory, *packages: str) -> None:
        self.server, self._home = server, data_directory
        self.names = {statement.sql: statement.name for package in packages for statement in load(package)}
        self._crash: Crash | None = None
        self._is_over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        parts = urlsplit(self.server.url)
        login, port = parts.netloc.rpartition("@")[0], self._listener.sockets[0].getsockname()[1]
        return joined(parts._replace(netloc=f"{login}@127.0.0.1:{port}", query="sslmode=disable"))

    def url_of(self, database: str) -> str:
        return with_database(self.url, database)

    def crash_at(self, crash: Crash) -> asyncio.Event:
        """Crash at the next occurrence of the statement; returns an event that is set when the server has noticed."""
        self._crash, self._is_over = crash, asyncio.Event()
        return self._is_over

    def give_up(self) -> None:
        """Crash no more."""
        self._crash = None

    def is_due(self, moment: Moment, statements: Collection[str | None]) -> bool:
        """True if the chosen crash is at this moment of one of these statements."""
        return self._crash is not None and self._crash.moment is moment and self._crash.statement in statements

    async def crash(self, backend: int) -> None:
        """Kill the chosen victim; a session that comes here at the same time finds the crash taken."""
        crash, self._crash = self._crash, None
        assert crash is not None
        if crash.moment is Moment.RUNNING:
            await asyncio.sleep(random.uniform(0, RUNS_AT_MOST_S))
        if crash.is_flushed:
            await self._execute(_FLUSH)
        victim = backend if crash.victim is Victim.BACKEND else self._home.find_postmaster() or backend
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self._start(self._end(victim))  # a task of its own: the crash ends the session that this one serves

    async def _end(self, victim: int) -> None:
        """Wait until the server has noticed the death; before, it takes new sessions."""
        while psutil.pid_exists(victim):  # noqa: ASYNC110 - the server reaps it
            await asyncio.sleep(POLL_S)
        self._is_over.set()

    async def log_next_values(self) -> None:
        """Make the chosen crash lose the values that the statement takes from sequences, if it loses the statement."""
        if self._crash is not None and not self._crash.is_flushed:
            await self._execute(_LOG_NEXT_VALUES)

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.server.admin_url)
        await connection.execute(statement)
        await connection.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start(self._serve(reader, writer))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            host = hosts_of(self.server.find_url())[0]
            server_reader, server_writer = await asyncio.open_connection(host.name, host.port)
            try:
                await _ProxiedSession(self, writer, server_writer).run(reader, server_reader)
            finally:
                server_writer.transport.abort()
        writer.transport.abort()


class _ProxiedSession:
    """One session: the statements that its client has prepared, and the one that runs."""

    def __init__(self, proxy: CrashingProxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._prepared: dict[bytes, str | None] = {}
        self._statements: list[str | None] = []  # that this transaction has run
        self._backend = 0

    async def run(self, client: asyncio.StreamReader, server: asyncio.StreamReader) -> None:
        self._server.write(await _read_startup(client))
        pumps = [
            asyncio.create_task(self._pump(client, self._server, self._ask)),
            asyncio.create_task(self._pump(server, self._client, self._answer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        pass_on: "Callable[[bytes, bytes], AsyncIterator[bytes]]",
    ) -> None:
        while True:
            kind = await source.readexactly(1)
            size = await source.readexactly(LENGTH.size)
            body = await source.readexactly(LENGTH.unpack(size)[0] - LENGTH.size)
            async for message in pass_on(kind, body):
                target.write(message)
            await target.drain()

    async def _ask(self, kind: bytes, body: bytes) -> AsyncIterator[bytes]:
        """Pass on a message of the client."""
        if kind == b"P":
            name, text = body.split(b"\0", 2)[:2]
            self._prepared[name] = self._proxy.names.get(text.decode())
        elif kind == b"B":
            self._statements.append(self._prepared.get(body.split(b"\0", 2)[1]))
            if any(self._proxy.is_due(moment, self._statements[-1:]) for moment in _AFTERWARDS):
                await self._proxy.log_next_values()
            if self._proxy.is_due(Moment.BEFORE, self._statements[-1:]):
                await self._crash()
        yield _encode(kind, body)
        if kind == b"S" and self._proxy.is_due(Moment.RUNNING, self._statements[-1:]):
            await self._crash()

    async def _answer(self, kind: bytes, body: bytes) -> AsyncIterator[bytes]:
        """Pass on a message of the server."""
        if kind == b"K":
            self._backend = LENGTH.unpack_from(body)[0]
        is_committed = kind == b"Z" and body == _IDLE
        if is_committed and self._proxy.is_due(Moment.COMMITTED, self._statements):
            await self._crash()
        yield _encode(kind, body)
        if is_committed and self._proxy.is_due(Moment.ANSWERED, self._statements):
            await self._proxy.crash(self._backend)
        if is_committed:
            self._statements.clear()

    async def _crash(self) -> None:
        """Crash, and pass nothing on any more."""
        await self._proxy.crash(self._backend)
        raise ConnectionAbortedError


async def _read_startup(client: asyncio.StreamReader) -> bytes:
    """The first message, which has no kind. The URL disables TLS, so it is not a request for it."""
    size = await client.readexactly(LENGTH.size)
    return size + await client.readexactly(LENGTH.unpack(size)[0] - LENGTH.size)


def _encode(kind: bytes, body: bytes) -> bytes:
    return kind + LENGTH.pack(len(body) + LENGTH.size) + body
