"""The data directory of an embedded server, and the locks by which processes share it.

`postgres/` is the cluster, `postgres.log` the server's log, `postgres.json` (0600) its port and the password of the
role `postroom`, `postgres.socket/` (0700; in the system's temporary directory if the path is too long for a socket)
the socket over which the superuser is trusted. Three more files are locks:

    postgres.lock    exclusive while a process starts or stops the server
    postgres.users   shared by every process that uses the server; the one that can lock it alone stops the server
    postgres.alive   inherited by all processes of the server; released when the last one ends

The kernel releases a lock when its holder dies. So no counter has to be repaired after SIGKILL, and a reused process
id does no harm.
"""

import asyncio
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from urllib.parse import quote

import msgspec

from postroom.embedded.errors import EmbeddedServerError
from postroom.runtime.secret_key import write_private

POLL_S = 0.01  # a start takes about 0.3 s; polling costs nothing noticeable
LOCK_TIMEOUT_S = 90.0  # longer than a start and a stop together
LOG_LIMIT_BYTES = 10_000_000  # some days of an ordinary log
LOG_TAIL_LINES = 12  # enough for the reason why a server did not start
LONGEST_SOCKET_DIR = 84  # PostgreSQL appends `/.s.PGSQL.65535`, and the path must stay under 100 bytes
LONGEST_TEMPORARY_DIR = 60  # leaves room for the folder's own name within LONGEST_SOCKET_DIR
PASSWORD_BYTES = 32  # 256 bits
POSTMASTER_LINES = 8  # lines of a complete postmaster.pid
TEMPORARY_PREFIX = "postroom-"


@dataclass(frozen=True, slots=True)
class ServerState:
    """Address and password of a server: the content of `postgres.json`."""

    port: int
    socket_dir: str
    password: str = field(repr=False)

    @property
    def admin_url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(self.socket_dir, safe='')}&port={self.port}"

    @property
    def url(self) -> str:
        return f"postgresql://postroom:{self.password}@127.0.0.1:{self.port}/postroom"


class DataDirectory:
    """The files under one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self.alive = self.data_dir / "postgres.alive"
        self.cluster = self.data_dir / "postgres"
        self.lock = self.data_dir / "postgres.lock"
        self.log = self.data_dir / "postgres.log"
        self.state = self.data_dir / "postgres.json"
        self.unfinished = self.data_dir / "postgres.unfinished"
        self.users = self.data_dir / "postgres.users"

    def find_postmaster(self) -> int | None:
        """The process id of this cluster's server, ignoring an unrelated process that reused the id."""
        lines = self._postmaster_lines()
        if not lines or not lines[0].isdigit():
            return None
        return int(lines[0]) if _works_in(int(lines[0]), self.cluster) else None

    def forget_dead_postmaster(self) -> None:
        """Remove the pid file of a dead server, which would prevent a start.

        PostgreSQL only checks that the process id exists, which is true for a zombie and for a reused id.
        """
        if self._postmaster_lines() and self.find_postmaster() is None:
            (self.cluster / "postmaster.pid").unlink(missing_ok=True)

    def is_alive(self) -> bool:
        """True while a process of the server, or of `initdb`, exists."""
        if not self.alive.exists():
            return False
        handle = try_lock(self.alive, fcntl.LOCK_SH)
        if handle is not None:
            os.close(handle)
        return handle is None

    def log_since(self, offset: int) -> str:
        """The last log lines after this offset."""
        with self.log.open("rb") as file:
            file.seek(offset)
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def major(self) -> int | None:
        """The major version of the cluster, or None without a cluster."""
        try:
            return int((self.cluster / "PG_VERSION").read_text())
        except FileNotFoundError:
            if self.cluster.is_dir() and any(self.cluster.iterdir()):
                raise EmbeddedServerError(
                    f"{self.cluster} holds files but no PostgreSQL data. Move it away and start again."
                ) from None
            return None

    def make_socket_dir(self) -> Path:
        """Create an empty private directory with a path short enough for a socket."""
        chosen = self.data_dir / "postgres.socket"
        before = self.read_state()
        if len(os.fsencode(chosen)) <= LONGEST_SOCKET_DIR:
            chosen.mkdir(mode=0o700, exist_ok=True)
        elif before and _is_private(Path(before.socket_dir)):
            chosen = Path(before.socket_dir)
        else:
            chosen = _make_short_dir()
        for leftover in chosen.iterdir():
            leftover.unlink()
        return chosen

    def read_state(self) -> ServerState | None:
        with suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(self.state.read_bytes(), type=ServerState)
        return None

    def recover_state(self) -> ServerState | None:
        """A state file with a new password for a running server whose state file was lost."""
        lines = self._postmaster_lines()
        if len(lines) < POSTMASTER_LINES:
            return None
        state = ServerState(int(lines[3]), lines[4], secrets.token_urlsafe(PASSWORD_BYTES))
        self.write_state(state)
        return state

    def remove_socket_dir(self) -> None:
        """Remove the socket directory from the system's temporary directory."""
        state = self.read_state()
        if state and Path(state.socket_dir).name.startswith(TEMPORARY_PREFIX):
            shutil.rmtree(state.socket_dir, ignore_errors=True)

    def rotate_log(self) -> int:
        """Move a log that is too long aside; returns the offset of the next line."""
        size = self.log.stat().st_size if self.log.exists() else 0
        if size <= LOG_LIMIT_BYTES:
            return size
        self.log.replace(self.log.with_suffix(".log.1"))
        return 0

    def says_ready(self) -> bool:
        """True if the pid file says that the server accepts connections."""
        return self._postmaster_lines()[POSTMASTER_LINES - 1 :] == ["ready"]

    def write_state(self, state: ServerState) -> None:
        """Replace the state file atomically."""
        write_private(self.state, msgspec.json.encode(state).decode())

    def _postmaster_lines(self) -> list[str]:
        """The lines of PostgreSQL's pid file: id, directory, start, port, socket directory, address, memory, status."""
        with suppress(FileNotFoundError):
            return [line.strip() for line in (self.cluster / "postmaster.pid").read_text().splitlines()]
        return []


async def lock(path: Path, operation: int) -> int:
    """Wait for a lock on the file; the returned descriptor holds it until it is closed."""
    deadline = monotonic() + LOCK_TIMEOUT_S
    while (handle := try_lock(path, operation)) is None:
        if monotonic() > deadline:
            raise EmbeddedServerError(f"Timed out after {LOCK_TIMEOUT_S:g} s: another process holds the lock {path}.")
        await asyncio.sleep(POLL_S)
    return handle


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Hold an exclusive lock for the duration of the block."""
    handle = await lock(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def try_lock(path: Path, operation: int) -> int | None:
    """Lock the file now (`LOCK_SH` or `LOCK_EX`), or return None."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _is_private(path: Path) -> bool:
    """True for a directory that only this user can write to."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    ours = os.geteuid() in (0, found.st_uid)
    return ours and stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def _make_short_dir() -> Path:
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > LONGEST_TEMPORARY_DIR:
        base = "/tmp"  # noqa: S108 - mkdtemp creates a random name with mode 0700
    return Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=base))


def _works_in(pid: int, cluster: Path) -> bool:
    """True if the process's working directory is the cluster, as for all of PostgreSQL's; a zombie has none."""
    if not Path("/proc/self").exists():
        return True  # not Linux: PostgreSQL's own check decides
    try:
        return os.path.samestat(Path(f"/proc/{pid}/cwd").stat(), cluster.stat())
    except FileNotFoundError:
        return False
    except PermissionError:
        return True  # another user's process: PostgreSQL's own check decides
