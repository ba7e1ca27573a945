"""A real PostgreSQL for every test: one server per process of the run, one template database, a clone per test."""

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
import structlog
from hypothesis import HealthCheck, settings

from postroom.db.migrate import migrate
from postroom.db.pool import Pool, Session, open_pool
from postroom.db.room import Room, open_room
from postroom.embedded import binaries
from postroom.embedded import server as embedded
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.events.service import adopt_restored_events
from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog
from postroom.mail.publishing import publish
from postroom.settings import Settings

SCHEMA = "postroom"
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 4 * 2**30

# A machine that stalls while an example is made or tried finds no fault with it, and a build tries the same ones each
# time. To look for new ones: ./dev test --quick --hypothesis-profile=explore tests/events
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", settings.get_profile("tests"), derandomize=False)
settings.load_profile("tests")


@dataclass(frozen=True, slots=True)
class TestServer:
    """The run's server: where it is, the database that clones are made of, and a session that makes them."""

    __test__ = False

    url: str
    template: str
    admin: Session  # one for all tests: a connection for each costs as much as a third of its clone
    superuser_url: str

    def database(self, name: str) -> str:
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(path=f"/{name}"))


def postgres_major() -> int | None:
    """The major version under test: the newest unless TEST_POSTGRES_MAJOR asks for another."""
    asked = os.environ.get("TEST_POSTGRES_MAJOR")
    return int(asked) if asked else None


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def _make_template(server: EmbeddedServer, name: str) -> None:
    connection = await asyncpg.connect(server.url)
    try:
        if await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
            return
        await connection.execute(f'CREATE DATABASE "{name}_making"')
    finally:
        await connection.close()
    parts = urlsplit(server.url)
    url = urlunsplit(parts._replace(path=f"/{name}_making"))
    await migrate(url, SCHEMA)
    async with await open_pool(url, SCHEMA, size=1) as pool:
        await publish(pool, Catalog.load(BUILTIN_TEMPLATES), actor="cli:tests")
        await adopt_restored_events(pool)  # as a migration does: mail of rooms with unknown marks takes another way
    connection = await asyncpg.connect(server.url)
    try:
        await _insist(connection, f'ALTER DATABASE "{name}_making" RENAME TO "{name}"')
    finally:
        await connection.close()


async def _insist(connection: Session, statement: str) -> None:
    """Wait until the database has no connection: closed sessions end asynchronously, maybe in another process."""
    async with asyncio.timeout(60):
        while True:
            with suppress(asyncpg.ObjectInUseError, asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
                return


@pytest.fixture(scope="session", autouse=True)
def empty_data_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests away from the data directory of a Postroom that runs in this checkout."""
    os.environ["POSTROOM_DATA_DIR"] = str(tmp_path_factory.getbasetemp() / "nobody")


@pytest.fixture(scope="session", autouse=True)
def patient_server() -> None:
    """Wait for PostgreSQL and its programs as long as a machine that stalls may hold them up."""
    binaries.VERSION_TIMEOUT_S = 60
    embedded.CONNECT_TIMEOUT_S = embedded.RETRY_S = embedded.STOP_TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def same_logs() -> Iterator[None]:
    """Leave logging as it was: a command that a test runs takes it over, with a stream that is closed afterwards."""
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


@pytest.fixture(scope="session")
def server_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory, and so a server, for each process of the run; in memory where there is room, which is twice as fast.

    An open transaction anywhere in a cluster holds back everybody who follows tables there, and tests of followers must
    not depend on their neighbours.
    """
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and disk_usage(MEMORY).free > MEMORY_NEEDED:
        with TemporaryDirectory(prefix="postroom-tests-", dir=MEMORY) as in_memory:
            yield Path(in_memory)
        return
    on_disk = tmp_path_factory.getbasetemp() / "postgres"
    on_disk.mkdir(parents=True, exist_ok=True)
    yield on_disk


@pytest.fixture(scope="session")
async def server(server_directory: Path) -> AsyncIterator[TestServer]:
    """The run's PostgreSQL, without fsync: a crash of the machine is not what these tests are about."""
    # An autovacuum worker would keep DROP DATABASE from ending sessions: it belongs to the superuser.
    extra = (("max_connections", "300"), ("autovacuum", "off"))
    options = ServerOptions(fsync=False, major=postgres_major(), extra=extra)
    async with EmbeddedServer(server_directory / "data", options) as embedded:
        with _exclusive(server_directory / "template.lock"):
            await _make_template(embedded, "template_room")
        admin = await asyncpg.connect(embedded.url)
        yield TestServer(embedded.url, "template_room", admin, embedded.admin_url)
        await admin.close()


@asynccontextmanager
async def cloned_database(server: TestServer) -> AsyncIterator[str]:
    """A fresh copy of the template; dropped afterwards, even with open connections."""
    name = f"test_{uuid4().hex[:12]}"
    await _insist(server.admin, f'CREATE DATABASE "{name}" TEMPLATE "{server.template}" STRATEGY file_copy')
    yield server.database(name)
    await _insist(server.admin, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
async def database_url(server: TestServer) -> AsyncIterator[str]:
    async with cloned_database(server) as url:
        yield url


@pytest.fixture
def room_settings(database_url: str) -> Settings:
    return _room_settings(database_url)


def _room_settings(url: str) -> Settings:
    # Tests of silent servers put the loop's clock forward by an hour, and statements that run then must not time out.
    return Settings(database_url=url, database_timeout=timedelta(days=1))


@pytest.fixture
async def room(room_settings: Settings) -> AsyncIterator[Room]:
    async with open_room(room_settings) as opened:
        yield opened


@pytest.fixture(scope="module")
async def shared_room(server: TestServer) -> AsyncIterator[Room]:
    """A room for all tests of a module that change nothing in it: a clone for each would take 60 ms of CPU time."""
    async with cloned_database(server) as url, open_room(_room_settings(url)) as opened:
        yield opened


@pytest.fixture
def pool(room: Room) -> Pool:
    return room.pool
