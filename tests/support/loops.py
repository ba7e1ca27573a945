"""Running loops in a test until the test is done with them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.support.patience import PATIENCE_S

from postroom.runtime.loop import Failed, Loop, run_loops


@asynccontextmanager
async def looping(*loops: Loop, failed: Failed | None = None) -> AsyncIterator[asyncio.Event]:
    """Run these until the block ends or the event it gets is set; fails if they do not stop then."""
    stop = asyncio.Event()
    running = asyncio.create_task(run_loops(loops, stop=stop, failed=failed))
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(running, PATIENCE_S)


async def logged(event: str, logs: Sequence[Mapping[str, Any]]) -> None:
    """Wait until `capture_logs` has caught this event."""
    async with asyncio.timeout(PATIENCE_S):
        while not any(entry["event"] == event for entry in logs):  # noqa: ASYNC110 - a list of log entries has no event
            await asyncio.sleep(0.01)
