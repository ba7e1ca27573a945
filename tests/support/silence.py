"""A server that says nothing more, and time that passes at once.

Patience measured in real milliseconds also runs out when the machine stalls, and then a test sees a time-out somewhere
else than where its server fell silent. Here patience may be as long as in production: the loop's clock is put forward
when the silence has begun, and only then.
"""

import asyncio
from weakref import WeakKeyDictionary

LONG_S = 3_600.0
"""More than anybody's patience."""

_TURNS = 50
"""After so many turns of the loop a client on the same loop has read what was sent and waits for more."""

_passed: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()


async def fall_silent() -> None:
    """Say nothing more, for longer than anybody waits. Never returns."""
    await wait_out()
    await asyncio.Event().wait()


async def wait_out() -> None:
    """Everybody's patience on this loop ends, wherever it stands now."""
    await settle()
    let_pass(LONG_S)


async def settle() -> None:
    """Let everything on this loop go on until it waits."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def let_pass(seconds: float) -> None:
    """Whatever waits on this loop for less than that has waited long enough."""
    loop = asyncio.get_running_loop()
    if loop not in _passed:
        real = loop.time
        loop.time = lambda: real() + _passed[loop]  # type: ignore[method-assign]
    _passed[loop] = _passed.get(loop, 0.0) + seconds
