"""A connection to NATS: it heals itself once it stands, and says within seconds when it cannot be made.

The client repeats the first connect for ever if it may reconnect for ever. Whoever waits for it would hear neither of
the trouble nor of the order to stop, so the first one has a bound.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import nats.errors
import structlog
from nats.aio.client import Client

FIRST_CONNECT_S = 5.0
ONE_SERVER_S = 2  # less than the bound, so that a silent server does not keep us from the others

_log = structlog.get_logger()


async def connect(servers: Sequence[str]) -> Client:
    """A connection to one of these servers; raises what went wrong last if none answers in time."""
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
    """The client reconnects by itself; its troubles on the way are worth one line each, without a trace."""
    _log.info("nats_troubled", error=type(error).__name__)
