"""The front doors of a process: HTTP with the dashboard behind it, and SMTP submission.

Addresses are taken before anything else is started, so that a second process changes nothing and says why.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

from postroom.dashboard.asgi import build_dashboard
from postroom.db.room import Room
from postroom.delivery.combiner import AcceptCombiner
from postroom.http import build_app
from postroom.http.auth import Authenticator
from postroom.intake.smtp.handler import Authenticate
from postroom.intake.smtp.server import SubmissionOptions, SubmissionServer
from postroom.mail.catalog import Catalog
from postroom.runtime import uvicorn_server
from postroom.settings import Settings


@dataclass(frozen=True, slots=True)
class Doors:
    """Addresses that are ours: bound, not listening yet."""

    http: socket.socket
    smtp: socket.socket | None

    @property
    def url(self) -> str:
        return uvicorn_server.url_of(self.http)

    @property
    def smtp_address(self) -> str | None:
        if self.smtp is None:
            return None
        host, port = self.smtp.getsockname()[:2]
        return f"{host}:{port}"


@contextmanager
def take_doors(settings: Settings) -> Iterator[Doors]:
    """Take both addresses; one that is in use is refused by the name of its variable."""
    with uvicorn_server.bind(settings.http_addr) as http:
        if settings.smtp_addr is None:
            yield Doors(http, None)
            return
        with uvicorn_server.bind(settings.smtp_addr, variable="POSTROOM_SMTP_ADDR") as smtp:
            yield Doors(http, smtp)


async def keep_doors(
    room: Room, catalog: Catalog, doors: Doors, *, stop: asyncio.Event, on_ready: Callable[[], None]
) -> None:
    """Answer until `stop` is set; then take nothing new and finish what has begun."""
    settings = room.settings
    dashboard = build_dashboard(room, secret=settings.secret_key, stop=stop) if settings.secret_key else None
    async with AsyncExitStack() as stack:
        options = SubmissionOptions.of(settings)
        if doors.smtp is not None and options is not None:
            accepting = AcceptCombiner(room.pool, idempotency_ttl=settings.idempotency_ttl)
            submission = SubmissionServer(accepting, submitter(room), options, listener=doors.smtp)
            await stack.enter_async_context(submission)
        app = build_app(room, catalog=catalog, fallback=dashboard)
        await uvicorn_server.serve(app, doors.http, stop, grace=settings.shutdown_grace, on_ready=on_ready)


def submitter(room: Room) -> Authenticate:
    """Who may submit by SMTP: whoever may accept deliveries over HTTP, with the key as password."""
    auth = Authenticator(room.pool)

    async def authenticate(key: str) -> str:
        return (await auth.authenticate(f"Bearer {key}", "deliveries:write")).name

    return authenticate
