"""Both clients of a room that is served on loopback."""

from collections.abc import AsyncIterator

import pytest
from tests.support.clients import EitherClient, open_either
from tests.support.http import a_key
from tests.support.served import served

from postroom.db.room import Room
from postroom.http.asgi import build_app


@pytest.fixture
async def url(room: Room) -> AsyncIterator[str]:
    async with served(build_app(room)) as address:
        yield address


@pytest.fixture
async def key(room: Room) -> str:
    return (await a_key(room, "client", "*"))[0]


@pytest.fixture(params=["async", "sync"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def client(url: str, key: str, kind: str) -> AsyncIterator[EitherClient]:
    async with open_either(kind, url, key) as opened:
        yield opened
