"""A connection to NATS: it reconnects by itself, and its first connect has a timeout.

The client retries the first connect without end if reconnects are unlimited. The caller would see neither the error
nor a stop meanwhile.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import nats.errors
import structlog
from nats.aio.client import Client

FIRST_CONNECT_S = 5.0  # longer than a connect over a slow network; later connects are retried in the background
ONE_SERVER_S = 2  # shorter than the whole timeout, so that an unresponsive server does not prevent trying the others

_log = structlog.get_logger()


async def connect(servers: Sequence[str]) -> Client:
    """Connect to one of these servers; raises the last error if none responds in time."""
    client = Client()
    try:
        async with asyncio.timeout(FIRST_CONNECT_S):
            await client.connect(
                servers=list(servers),
                name="postroom",
                connect_timeout=ONE_SERVER_S,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.5,  # type: ignore[arg-type] # it sleeps so long: any number of seconds will do
                error_cb=_note,
            )
    except BaseException as error:
        with suppress(nats.errors.Error, OSError):
            await client.close()
        if isinstance(error, TimeoutError) and client.last_error is not None:
            raise client.last_error from None
        raise
    return client


async def _note(error: Exception) -> None:
    """Log a connection error in one line; the client reconnects by itself."""
    _log.info("nats_troubled", error=type(error).__name__)
