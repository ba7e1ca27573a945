"""An application of aiohttp on a real socket of loopback, for as long as a test needs it.

Apart from `served`: tests of pure modules run without uvicorn.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def answering(app: web.Application, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address at which the application of aiohttp answers."""
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
