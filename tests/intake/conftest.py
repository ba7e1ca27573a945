"""What the tests of intake share: a submission server with a real key."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from postroom.db.room import Room
from postroom.delivery.combiner import AcceptCombiner
from postroom.http import service as keys
from postroom.http.auth import Authenticator
from postroom.intake.smtp import SubmissionOptions, SubmissionServer

Serve = Callable[..., contextlib.AbstractAsyncContextManager["Served"]]


@dataclass(frozen=True, slots=True)
class Served:
    """A listening server and a key that may submit to it."""

    server: SubmissionServer
    key: str
    key_id: int
    auth: Authenticator

    @property
    def port(self) -> int:
        return self.server.port


@pytest.fixture
def serve(room: Room) -> Serve:
    """Opens a submission server in the test's room, on a free port of loopback."""

    @contextlib.asynccontextmanager
    async def open_server(*, scope: str = "deliveries:write", **options: object) -> AsyncIterator[Served]:
        key, row = await keys.create_key(room.pool, "shop", scopes=[scope], actor="tests")
        auth = Authenticator(room.pool)

        async def authenticate(presented: str) -> str:
            return (await auth.authenticate(f"Bearer {presented}", "deliveries:write")).name

        accepting = AcceptCombiner(room.pool)
        chosen = SubmissionOptions(port=0, **options)  # type: ignore[arg-type]
        async with SubmissionServer(accepting, authenticate, chosen) as server:
            yield Served(server, key, row.id, auth)
        await accepting.drain()

    return open_server
