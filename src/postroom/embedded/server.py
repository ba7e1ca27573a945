"""A PostgreSQL server in one directory, shared by every process that uses it.

The first process starts it, the last one stops it; `data_directory` has the locks. The server survives a user that is
killed, and the next start adopts it, even half started. It runs in its own session, so Ctrl-C does not reach it. After
a crash `start` starts it again, on the same port if that is free; `keep_running` does so automatically.

The superuser connects over the private socket, the role `postroom` over loopback TCP with SCRAM. The server and its
log receive only a verifier of the password. Writes are durable unless the options say otherwise.

Raises `EmbeddedServerError` with the last lines of the log. Needs `flock`: Linux, macOS, BSD.
"""

import asyncio
import base64
import fcntl
import hashlib
import hmac
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Self

import asyncpg
import structlog

from postroom.db import queries
from postroom.embedded.binaries import Programs, find_binaries, programs_for
from postroom.embedded.data_directory import PASSWORD_BYTES, POLL_S, DataDirectory, ServerState, lock, locked, try_lock
from postroom.embedded.errors import EmbeddedServerError

CONNECT_TIMEOUT_S = 5.0  # on loopback; longer means that the server does not work
START_TIMEOUT_S = 60.0  # crash recovery replays the write-ahead log
STOP_TIMEOUT_S = 30.0  # a checkpoint on a slow disk; then SIGQUIT, which loses nothing but needs recovery
RETRY_S = 5.0  # another process may be starting or stopping the same server
WATCH_S = 1.0  # a server that ended is started again within this time
SCRAM_ITERATIONS = 4096  # PostgreSQL's default; the password is random, so more iterations add nothing
# Outside the ephemeral range (32768–60999 on Linux): no outgoing connection of another program takes the port while the
# server is down.
PORTS = range(20_000, 32_000)
QUERIES = queries.load("postroom.embedded", "server.sql")
# Temporary failures: processes of a killed server that are still ending, or a port that was taken meanwhile.
PASSING = re.compile("is still in use|lock file .* already exists|Address already in use|could not bind")

SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    # Backups use pg_dump. Crash safety needs less than replication.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_line_prefix": "%m [%p] ",
    # Neither rejected rows nor statements with their values are logged.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "lc_messages": "C",  # PASSING matches these messages
}
VOLATILE_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
ACCESS_RULES = """\
# Written by Postroom. The socket directory is private; over TCP only loopback, never the superuser.
local all all trust
host all postgres 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
"""

log = structlog.get_logger(__name__)
_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of a start. An adopted server keeps its own options."""

    fsync: bool = True
    major: int | None = None
    extra: tuple[tuple[str, str], ...] = ()


class EmbeddedServer:
    """A PostgreSQL server in one data directory, shared by every process that uses it."""

    def __init__(self, data_dir: Path, options: ServerOptions = ServerOptions()) -> None:  # noqa: B008 - the default is frozen
        self._home = DataDirectory(data_dir)
        self._options = options
        self._state: ServerState | None = None
        self._users: int | None = None
        self._turn = asyncio.Lock()  # a start and a stop in one process must not overlap

    def __repr__(self) -> str:
        return f"EmbeddedServer({str(self._home.data_dir)!r}, started={self._state is not None})"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    @property
    def admin_url(self) -> str:
        """URL of the superuser, over the private socket. It may change when the server restarts."""
        return self._started().admin_url

    @property
    def url(self) -> str:
        """URL of the application's role, over loopback TCP. It may change when the server restarts."""
        return self._started().url

    def find_url(self) -> str:
        """The current URL, also after another process restarted the server on another port."""
        return (self._home.read_state() or self._started()).url

    async def start(self) -> str:
        """Use the running server, or start one, also after a crash; returns its URL."""
        async with self._turn:
            try:
                await self._ensure_running()
            except OSError as problem:
                raise EmbeddedServerError(f"{self._home.data_dir} cannot be used: {problem}") from problem
        return self.url

    async def keep_running(self) -> None:
        """Restart the server after each crash, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._home.is_alive() or self._home.major() is None:  # a deleted data directory is not created again
                continue
            log.error("embedded_server_crashed", data_dir=str(self._home.data_dir), log=str(self._home.log))
            try:
                await self.start()
            except EmbeddedServerError as problem:
                log.error("embedded_server_did_not_start", error=str(problem))  # noqa: TRY400 - the message is complete; a traceback adds nothing
            else:
                log.warning("embedded_server_runs_again")

    async def stop(self) -> None:
        """Stop using the server; the last user stops it."""
        async with self._turn:
            if self._users is None:
                return
            os.close(self._users)
            self._users = self._state = None
            # If the data directory was deleted, the server notices within a minute and ends by itself.
            with suppress(FileNotFoundError):
                await self._stop_if_last()

    async def _stop_if_last(self) -> None:
        async with locked(self._home.lock):
            last = try_lock(self._home.users, fcntl.LOCK_EX)
            if last is not None:
                try:
                    await _shut_down(self._home)
                finally:
                    os.close(last)

    async def _ensure_running(self) -> None:
        if self._state is not None and await self._still_serves(self._state):
            return
        self._home.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with locked(self._home.lock):
            users = self._users if self._users is not None else await lock(self._home.users, fcntl.LOCK_SH)
            try:
                _check_major(self._home, self._options)
                self._state = await _adopt(self._home) or await _launch(self._home, self._options)
                self._users = users
            except BaseException:
                os.close(users)
                self._users = self._state = None
                raise

    async def _still_serves(self, state: ServerState) -> bool:
        """False after a crash, also if another process restarted the server on another port."""
        return self._home.read_state() == state and await _answers(state.admin_url)

    def _started(self) -> ServerState:
        if self._state is None:
            raise EmbeddedServerError("The embedded server has not been started.")
        return self._state


def has_cluster(data_dir: Path) -> bool:
    """True if this directory has a cluster."""
    return data_dir.is_dir() and DataDirectory(data_dir).major() is not None


async def running_url(data_dir: Path) -> str | None:
    """The URL of the server that runs in this directory, without starting one or counting as a user."""
    home = DataDirectory(data_dir)
    state = home.read_state()
    if state is None or not home.is_alive():
        return None
    return state.url if await _answers(state.url) else None


async def _adopt(home: DataDirectory) -> ServerState | None:
    """The server that already runs here, also if its start was killed halfway."""
    if not home.is_alive():
        return None
    state = home.read_state() or home.recover_state()
    if state is None or not await _answers_while(state, home, home.is_alive):
        return None
    if not await _answers(state.url):
        await _provide(state)
    return state


async def _launch(home: DataDirectory, options: ServerOptions) -> ServerState:
    binaries = await asyncio.to_thread(find_binaries, options.major or home.major())
    programs = await asyncio.to_thread(programs_for, home.data_dir, binaries)
    # Wait until the processes of a killed server or start have ended.
    held = await lock(home.alive, fcntl.LOCK_EX)
    try:
        if home.major() is None:
            await _initialise(home, programs, sync=options.fsync, held=held)
        programs.account.give_tree(home.cluster)
        return await _start_until_ready(home, programs, options=options, held=held)
    finally:
        os.close(held)


def _check_major(home: DataDirectory, options: ServerOptions) -> None:
    made_by = home.major()
    if made_by and options.major and made_by != options.major:
        raise EmbeddedServerError(
            f"{home.data_dir} was made by PostgreSQL {made_by} and cannot be opened by {options.major}. "
            f"Start it with major {made_by}. To move, dump it with the pg_dump of {options.major} and "
            f"restore the dump under a new data directory."
        )


async def _initialise(home: DataDirectory, programs: Programs, *, sync: bool, held: int) -> None:
    """Create the cluster beside its final path and rename it: an existing cluster is always complete."""
    shutil.rmtree(home.unfinished, ignore_errors=True)
    await programs.make_cluster(home.unfinished, sync=sync, held=held)
    (home.unfinished / "pg_hba.conf").write_text(ACCESS_RULES)
    home.unfinished.rename(home.cluster)
    directory = os.open(home.data_dir, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


async def _start_until_ready(
    home: DataDirectory, programs: Programs, *, options: ServerOptions, held: int
) -> ServerState:
    deadline = monotonic() + RETRY_S
    while True:
        _reap_children()
        home.forget_dead_postmaster()
        log_start = home.rotate_log()
        state = _plan(home, programs, options)
        child = programs.start_server(home.cluster, _settings(options, state), log=home.log, held=held)
        _children.append(child)
        if await _became_ready(home, state, child):
            return state
        said = home.log_since(log_start)
        if monotonic() > deadline or not PASSING.search(said):
            raise EmbeddedServerError(f"PostgreSQL did not start under {home.data_dir}:\n{said}")
        await asyncio.sleep(10 * POLL_S)


async def _became_ready(home: DataDirectory, state: ServerState, child: subprocess.Popen[bytes]) -> bool:
    try:
        ready = await _answers_while(state, home, lambda: child.poll() is None)
        if ready:
            await _provide(state)
    except BaseException:
        # No other process uses it yet: this process holds the start lock.
        child.send_signal(signal.SIGINT)
        raise
    return ready


def _plan(home: DataDirectory, programs: Programs, options: ServerOptions) -> ServerState:
    """Choose port and socket directory, and write the state file before the server starts."""
    before = home.read_state()
    socket_dir = home.make_socket_dir()
    programs.account.give(socket_dir)
    state = ServerState(
        port=int(dict(options.extra).get("port", 0)) or _free_port(before.port if before else 0),
        socket_dir=str(socket_dir),
        password=before.password if before else secrets.token_urlsafe(PASSWORD_BYTES),
    )
    home.write_state(state)
    for path in (home.state, home.lock, home.users, home.alive):
        programs.account.give(path)
    return state


def _settings(options: ServerOptions, state: ServerState) -> dict[str, str]:
    return {
        **SETTINGS,
        **({} if options.fsync else VOLATILE_SETTINGS),
        "listen_addresses": "127.0.0.1",
        **dict(options.extra),
        "port": str(state.port),
        "unix_socket_directories": state.socket_dir,
        "unix_socket_permissions": "0700",
    }


def _free_port(wanted: int) -> int:
    """The previous port if it is free, so that clients reconnect; otherwise one of `PORTS`."""
    chosen = random.sample(PORTS, 100)  # 100 attempts find a free port even on a busy host
    for port in (*([wanted] if wanted else []), *chosen, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as PostgreSQL does
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise EmbeddedServerError("No port is free on 127.0.0.1.")


async def _answers_while(state: ServerState, home: DataDirectory, running: Callable[[], bool]) -> bool:
    """Wait until the running server accepts the superuser; False if it ends first."""
    deadline = monotonic() + START_TIMEOUT_S
    while running():
        # Connecting too early would fill the log with errors.
        if home.says_ready() and await _answers(state.admin_url):
            return True
        if monotonic() > deadline:
            raise EmbeddedServerError(f"The server under {home.data_dir} did not answer in {START_TIMEOUT_S:g} s.")
        await asyncio.sleep(POLL_S)
    return False


async def _answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT_S, ssl=False)
    except asyncpg.TooManyConnectionsError:
        return True
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


async def _provide(state: ServerState) -> None:
    """Create the application's role, with the password of the state file, and its database."""
    verifier = _scram_verifier(state.password)
    connection = await asyncpg.connect(
        state.admin_url, timeout=CONNECT_TIMEOUT_S, ssl=False, server_settings={"postroom.verifier": verifier}
    )
    try:
        await QUERIES["take_turn"].one(connection)
        await QUERIES["provide_role"].exec(connection)
        if not (await QUERIES["has_database"].one(connection))["has_database"]:
            await QUERIES["create_database"].exec(connection)
    finally:
        await connection.close()


def _scram_verifier(password: str) -> str:
    """The verifier that PostgreSQL stores for a password (RFC 5802)."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, stored, served = (base64.b64encode(part).decode() for part in (salt, stored_key, server_key))
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{salt_text}${stored}:{served}"


async def _shut_down(home: DataDirectory) -> None:
    """Stop the server: first a fast shutdown, then an immediate one; return when its last process has ended."""
    for number, patience_s in ((signal.SIGINT, STOP_TIMEOUT_S), (signal.SIGQUIT, RETRY_S)):
        postmaster = home.find_postmaster()
        if postmaster is not None:
            with suppress(ProcessLookupError):
                os.kill(postmaster, number)
        deadline = monotonic() + patience_s
        while home.is_alive():
            if monotonic() > deadline:
                break
            await asyncio.sleep(POLL_S)
        else:
            _reap_children()
            home.remove_socket_dir()
            return
    raise EmbeddedServerError(f"The server under {home.data_dir} did not stop; see {home.log}.")


def _reap_children() -> None:
    """Reap ended servers that this process started, so that none stays a zombie."""
    _children[:] = [child for child in _children if child.poll() is None]
