"""A PostgreSQL server of its own with a streaming replica, both in memory and on loopback."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

import asyncpg
import psutil
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

from postroom.db.migrate import migrate
from postroom.embedded.binaries import Programs, find_binaries, programs_for
from postroom.embedded.server import EmbeddedServer, ServerOptions

ROOM = "postroom"
_PRIMARY = (("wal_level", "replica"), ("max_wal_senders", "4"), ("hot_standby", "on"))


@dataclass
class StreamingReplica:
    """The replica: its URL, and its failures."""

    directory: Path
    programs: Programs
    port: int
    password: str
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"postgresql://postroom:{self.password}@127.0.0.1:{self.port}/postroom"

    async def execute(self, statement: str) -> None:
        """Run a statement as the superuser, which connects over the socket alone."""
        connection = await asyncpg.connect(
            host=str(self.directory), port=self.port, user="postgres", database="postroom"
        )
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def pause(self) -> None:
        """Stop replaying: the replica answers with older and older data."""
        await self.execute("SELECT pg_wal_replay_pause()")

    async def resume(self) -> None:
        await self.execute("SELECT pg_wal_replay_resume()")

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
            "max_connections": "100",
            "hot_standby": "on",
        }
        settings = [f"-c{name}={value}" for name, value in options.items()]
        account, data = self.programs.account, self.directory / "data"
        program = str(self.programs.binaries.tool("postgres"))
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*account.prefix, program, "-D", str(data), *settings],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", "")},
                **account.process_options(),
            )

    async def answers(self) -> None:
        """Wait until it accepts connections."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.execute("SELECT 1")
                except (OSError, asyncpg.PostgresError):
                    await asyncio.sleep(0.05)
                else:
                    return

    def signal(self, number: signal.Signals) -> list[psutil.Process]:
        """Send a signal to the server and its children, and return these."""
        if self.process is None or self.process.poll() is not None:
            return []
        server = psutil.Process(self.process.pid)  # each process of PostgreSQL has a session of its own
        server.suspend()  # it starts no process between the list and the signal
        children: list[psutil.Process] = server.children(recursive=True)
        for process in (*children, server):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return children

    def kill(self) -> None:
        """Kill all processes, and wait for them: PostgreSQL does not start while one still has its shared memory."""
        children = self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert alive == []


@asynccontextmanager
async def replicated_room(parent: Path) -> AsyncIterator[tuple[str, StreamingReplica]]:
    """The URL of a migrated room, and its replica, which has caught up.

    Their directory has a new name: a process that takes over tests of a module it has left runs its fixtures again.
    """
    directory = Path(mkdtemp(prefix="replicated-", dir=parent))
    os.chmod(directory, 0o755)  # noqa: PTH101 - ruff takes Path.chmod for slow; the account of the servers passes through it
    home = directory / "replica"
    async with EmbeddedServer(directory / "primary", ServerOptions(fsync=False, extra=_PRIMARY)) as primary:
        rules = directory / "primary" / "postgres" / "pg_hba.conf"
        await asyncio.to_thread(_allow_replication, rules)
        admin = await asyncpg.connect(primary.admin_url)
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()
        await migrate(primary.url, ROOM)
        home.mkdir()
        programs = programs_for(home, find_binaries())
        programs.account.give(home)
        password = urlsplit(primary.url).password or ""
        replica = StreamingReplica(home, programs, free_port(), password)
        await asyncio.to_thread(_copy, programs, primary.admin_url, home / "data")
        replica.start()
        try:
            await replica.answers()
            yield primary.url, replica
        finally:
            replica.kill()


def _allow_replication(rules: Path) -> None:
    rules.write_text(f"local replication all trust\n{rules.read_text()}")


def _copy(programs: Programs, url: str, data: Path) -> None:
    command = [str(programs.binaries.tool("pg_basebackup")), "-d", url, "-D", str(data), "-R", "-X", "stream"]
    options = programs.account.process_options()
    done = subprocess.run(
        [*programs.account.prefix, *command, "--checkpoint=fast", "--no-sync"],
        check=False,
        capture_output=True,
        env={"PATH": os.environ.get("PATH", "")},
        **options,
    )
    assert done.returncode == 0, done.stderr.decode()
