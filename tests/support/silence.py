"""A server that stops answering, and a clock that jumps over timeouts.

Timeouts in real milliseconds also expire when the machine stalls, and then a test sees a timeout at another step
than the one where its server stopped. Here timeouts may be as long as in production: the loop's clock is advanced
when the silence has begun, and only then.
"""

import asyncio
from weakref import WeakKeyDictionary

LONG_S = 3_600.0
"""Longer than any timeout."""

_TURNS = 50
"""After so many turns of the loop a client on the same loop has read what was sent and waits for more."""

_passed: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()


async def fall_silent() -> None:
    """Stop answering for longer than any timeout. Never returns."""
    await wait_out()
    await asyncio.Event().wait()


async def wait_out() -> None:
    """Expire all timeouts on this loop."""
    await settle()
    let_pass(LONG_S)


async def settle() -> None:
    """Run the loop until all its tasks wait."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def let_pass(seconds: float) -> None:
    """Advance the loop's clock by this time."""
    loop = asyncio.get_running_loop()
    if loop not in _passed:
        real = loop.time
        loop.time = lambda: real() + _passed[loop]  # type: ignore[method-assign]
    _passed[loop] = _passed.get(loop, 0.0) + seconds
