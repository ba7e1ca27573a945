"""The life of a long-running command: starting, running, stopping.

A signal while starting ends it at once, because nothing has begun. A signal while running sets `stop`, and everything
that runs finishes what it has begun. Both end with exit 0: being told to stop is not a failure.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

from postroom.app import stop_on_signals


class Life:
    """Handed to a command's main: `stop` to watch, `running` to call once its start is done."""

    def __init__(self) -> None:
        self.stop = stop_on_signals()
        self._is_running = False

    @property
    def is_running(self) -> bool:
        return self._is_running

    def running(self) -> None:
        """From here on a signal means finishing, not giving up."""
        self._is_running = True
        _collect_less()


def _collect_less() -> None:
    """What was made while starting stays, and mail makes no circles: looking for garbage cost a tenth of all work."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def live(main: Callable[[Life], Awaitable[None]]) -> None:
    """Run a command's main until it ends by itself or by a signal."""
    life = Life()
    work = asyncio.ensure_future(main(life))
    told = asyncio.ensure_future(life.stop.wait())
    await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if work.done() or life.is_running:
        await work
        return
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work
