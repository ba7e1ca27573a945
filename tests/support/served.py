"""An ASGI application on a real socket of loopback, for as long as a test needs it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from postroom.runtime.endpoint import ASGIApp
from postroom.runtime.http_connection import HttpLimits
from postroom.runtime.uvicorn_server import bind, serve, url_of


@asynccontextmanager
async def served(app: ASGIApp, *, limits: HttpLimits | None = None) -> AsyncIterator[str]:
    """The address at which the application answers."""
    stop, ready = asyncio.Event(), asyncio.Event()
    with bind(("127.0.0.1", 0)) as listener:
        serving = serve(app, listener, stop, grace=timedelta(seconds=60), on_ready=ready.set, limits=limits)
        running = asyncio.create_task(serving)
        await ready.wait()
        try:
            yield url_of(listener)
        finally:
            stop.set()
            await running
