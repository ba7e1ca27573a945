"""Two PostgreSQL servers with synchronous replication under Patroni, on loopback.

Patroni's own Raft elects the primary, so no other service runs. Two voters have no majority after one has failed: a
third process votes and has no PostgreSQL. Servers run in memory and without fsync: processes die here, machines do not.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import asyncpg
import msgspec
import psutil
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

from postroom.embedded.binaries import Programs, find_binaries, programs_for

TTL_S = 20  # the shortest that Patroni accepts: a host is given up after it
POLL_S = 0.1
ANSWER_S = 2.0  # a paused Patroni accepts connections and never answers
START_S = 120.0  # initdb, a base backup and two elections on a busy machine
_PATRONI = ("-m", "patroni")
_VOTER = ("-c", "from patroni.raft_controller import main; main()")
_TRUST = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]


class ClusterFailed(Exception):  # noqa: N818 - read as a sentence
    """The servers did not reach the state that was waited for."""


class ClusterNotStarted(ClusterFailed):
    """The servers never ran on this machine."""


class Failure(StrEnum):
    """How a primary fails."""

    POSTGRES = "postgres"  # SIGKILL to PostgreSQL; its Patroni survives and rejoins it
    HOST = "host"  # SIGKILL to PostgreSQL and Patroni
    PAUSE = "pause"  # SIGSTOP to both: connections stay open and silent, and later the old primary wakes up


@dataclass
class Member:
    """One process of the cluster, and its PostgreSQL unless it only votes."""

    name: str
    directory: Path
    rest: int = field(default_factory=free_port)
    postgres: int = field(default_factory=free_port)
    raft: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> Path:
        return self.directory / "patroni.log"

    def postgres_processes(self) -> list[psutil.Process]:
        """The postmaster and its children; empty if none runs."""
        try:
            postmaster = psutil.Process(int((self.directory / "data/postmaster.pid").read_text().split()[0]))
            return [postmaster, *postmaster.children(recursive=True)]
        except (OSError, psutil.NoSuchProcess):
            return []

    def signal(self, number: signal.Signals, *, patroni: bool) -> None:
        """Send a signal to PostgreSQL, and before that to Patroni, which would restart it."""
        if patroni and self.process is not None:
            self.process.send_signal(number)
        for process in self.postgres_processes():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue


class PatroniCluster:
    """Starts and stops the members; fails and revives the primary."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._programs: Programs = programs_for(directory, find_binaries())
        self.servers = [Member(name, directory / name) for name in ("a", "b")]
        self._voter = Member("voter", directory / "voter")
        self._members = [*self.servers, self._voter]

    @property
    def url(self) -> str:
        """The URL of Postroom's processes."""
        return self.all_hosts

    @property
    def all_hosts(self) -> str:
        hosts = ",".join(f"127.0.0.1:{member.postgres}" for member in self.servers)
        return f"postgresql://postgres@{hosts}/postgres"

    async def __aenter__(self) -> Self:
        try:
            for member in self._members:
                member.directory.mkdir()
                self._programs.account.give(member.directory)
                self._start(member)
            await self.replicated()
        except (ClusterFailed, OSError) as error:
            self._end()
            raise ClusterNotStarted(str(error)) from error
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def replicated(self) -> Member:
        """Wait until one server is the primary and the other its synchronous standby; returns the primary."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session:
            ends_at = time.monotonic() + START_S
            while time.monotonic() < ends_at and not self._has_ended():
                if (primary := await self._primary(session)) is not None:
                    return primary
                await asyncio.sleep(POLL_S)
        raise ClusterFailed(f"No primary with a synchronous standby, waited at most {START_S:g} s:\n{self._said()}")

    def fail(self, primary: Member, failure: Failure) -> float:
        """Make a primary fail; returns the time."""
        number = signal.SIGSTOP if failure is Failure.PAUSE else signal.SIGKILL
        failed_at = time.time()
        primary.signal(number, patroni=failure is not Failure.POSTGRES)
        return failed_at

    async def promoted(self, failed: Member) -> float:
        """Wait until the other server accepts writes; returns the time."""
        [other] = [member for member in self.servers if member is not failed]
        ends_at = time.monotonic() + START_S
        while time.monotonic() < ends_at:
            if await _accepts_writes(other):
                return time.time()
            await asyncio.sleep(POLL_S)
        raise ClusterFailed(f"No new primary after {START_S:g} s:\n{self._said()}")

    def revive(self, failed: Member, failure: Failure) -> None:
        """Bring the failed server back; Patroni rewinds it and makes it a standby."""
        if failure is Failure.PAUSE:
            failed.signal(signal.SIGCONT, patroni=True)
        if failure is Failure.HOST:
            self._start(failed)

    async def _primary(self, session: aiohttp.ClientSession) -> Member | None:
        """The primary that both servers name; one that was paused still believes what it knew before."""
        first, second = [await _roles(session, member) for member in self.servers]
        if first != second or sorted(first.values()) != ["leader", "sync_standby"]:
            return None
        primary = next(member for member in self.servers if first[member.name] == "leader")
        return primary if await _accepts_writes(primary) else None

    def _start(self, member: Member) -> None:
        config = member.directory / "patroni.yml"
        config.write_bytes(msgspec.json.encode(self._config(member)))  # JSON is YAML
        if member.process is not None:
            member.process.wait()
        command = _VOTER if member is self._voter else _PATRONI
        account = self._programs.account
        with member.log.open("ab") as log:
            member.process = subprocess.Popen(
                [*account.prefix, sys.executable, *command, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", "")},
                **account.process_options(),
            )

    def _config(self, member: Member) -> dict[str, Any]:
        voters = [f"127.0.0.1:{other.raft}" for other in self._members if other is not member]
        rest = f"127.0.0.1:{member.rest}"
        return {
            "scope": "postroom",
            "name": member.name,
            "restapi": {"listen": rest, "connect_address": rest},
            "raft": {
                "data_dir": str(member.directory / "raft"),
                "self_addr": f"127.0.0.1:{member.raft}",
                "partner_addrs": voters,
            },
            "bootstrap": {"dcs": _SHARED, "initdb": self._initdb()},
            "postgresql": self._postgres(member),
        }

    def _initdb(self) -> list[Any]:
        if self._programs.binaries.major < 17:
            return ["no-sync", {"encoding": "UTF8"}, {"locale": "C.UTF-8"}]
        builtin = [{"locale-provider": "builtin"}, {"builtin-locale": "C.UTF-8"}, {"locale": "C"}]
        return ["no-sync", {"encoding": "UTF8"}, *builtin]

    def _postgres(self, member: Member) -> dict[str, Any]:
        address = f"127.0.0.1:{member.postgres}"
        postgres = {"username": "postgres"}
        return {
            "listen": address,
            "connect_address": address,
            "data_dir": str(member.directory / "data"),
            "bin_dir": str(self._programs.binaries.bin_dir),
            "pgpass": str(member.directory / "pgpass"),
            "pg_hba": _TRUST,
            "authentication": {"superuser": postgres, "replication": {"username": "standby"}, "rewind": postgres},
            "parameters": {
                "unix_socket_directories": str(member.directory),
                "shared_buffers": "64MB",
                "fsync": "off",
                "dynamic_shared_memory_type": "mmap",  # a killed server leaves no segment behind in /dev/shm
            },
        }

    def _has_ended(self) -> bool:
        """True if a Patroni ended by itself."""
        return any(member.process is not None and member.process.poll() for member in self._members)

    def _said(self) -> str:
        """The last lines of every member's log."""
        logs = [member.log for member in self._members if member.log.exists()]
        return "\n".join(f"{log.parent.name}: {line}" for log in logs for line in log.read_text().splitlines()[-12:])

    def _end(self) -> None:
        for member in self._members:
            member.signal(signal.SIGKILL, patroni=True)
            if member.process is not None:
                member.process.wait()


_SHARED = {
    "ttl": TTL_S,
    "loop_wait": 1,
    "retry_timeout": 3,
    "primary_start_timeout": 0,  # a dead PostgreSQL is replaced, not restarted
    "synchronous_mode": True,  # only a server that has every acknowledged commit may become the primary
    "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": {"max_connections": 100}},
}


async def _roles(session: aiohttp.ClientSession, member: Member) -> dict[str, str]:
    """The role of each server that runs, as this one knows them."""
    try:
        async with session.get(f"http://127.0.0.1:{member.rest}/cluster") as response:
            known = msgspec.json.decode(await response.read())
    except (aiohttp.ClientError, TimeoutError):
        return {}
    return {each["name"]: each["role"] for each in known["members"] if each["state"] in ("running", "streaming")}


async def _accepts_writes(member: Member) -> bool:
    """True if a commit is acknowledged; a new primary may wait for a synchronous standby that it no longer has."""
    try:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=member.postgres, user="postgres", database="postgres", ssl=False, timeout=PATIENCE_S
        )
    except (OSError, asyncpg.PostgresError):
        return False
    try:
        await connection.fetchval("SELECT pg_logical_emit_message(true, 'postroom', '')", timeout=ANSWER_S)
    except (OSError, asyncpg.PostgresError):  # read-only, ended, or a timeout
        return False
    else:
        return True
    finally:
        connection.terminate()
