"""Flows run on PostgreSQL itself, and through a real PgBouncer in transaction mode.

Every flow that opens a room runs in both ways; on an older PostgreSQL directly alone. With TEST_PGBOUNCER=1
(`./dev test --pgbouncer`) all run through PgBouncer alone.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from tests.conftest import TestServer
from tests.support.pgbouncer import NEEDS_PGBOUNCER, PROGRAM, pgbouncer

from postroom.settings import Settings

POOLED = pytest.param("pgbouncer", marks=NEEDS_PGBOUNCER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the ways of a test that opens a room."""
    if "room_settings" not in metafunc.fixturenames:
        return
    if os.environ.get("TEST_PGBOUNCER"):
        if PROGRAM is None:
            raise pytest.UsageError("TEST_PGBOUNCER is set, and pgbouncer is not installed")
        metafunc.parametrize("room_settings", [POOLED], indirect=True)
    elif "TEST_POSTGRES_MAJOR" not in os.environ:
        metafunc.parametrize("room_settings", ["direct", POOLED], indirect=True)


@pytest.fixture(scope="session")
def pooled_url(server: TestServer) -> Iterator[Callable[[str], str]]:
    """The URL of a database behind the run's PgBouncer."""
    with pgbouncer(server.url) as url:
        yield lambda direct: urlsplit(url)._replace(path=urlsplit(direct).path).geturl()


@pytest.fixture
async def room_settings(
    request: pytest.FixtureRequest, room_settings: Settings, database_url: str, server: TestServer
) -> Settings:
    """The room's settings; behind PgBouncer, the database gives sessions the search path and the time zone."""
    if getattr(request, "param", "direct") == "direct":
        return room_settings
    name = urlsplit(database_url).path[1:]
    await server.admin.execute(f'ALTER DATABASE "{name}" SET search_path = postroom')
    await server.admin.execute(f"ALTER DATABASE \"{name}\" SET timezone = 'UTC'")
    pooled = request.getfixturevalue("pooled_url")(database_url)
    return replace(room_settings, database_url=pooled, database_direct_url=database_url)
