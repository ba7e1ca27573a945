"""Large messages are parsed beside the event loop."""

import asyncio

from postroom.intake.aside import ASIDE_BYTES, parse_aside


async def test_other_work_goes_on_while_a_large_message_is_parsed() -> None:
    """From 16 kB on the loop is free; a small message is not worth a thread."""
    loop = asyncio.get_running_loop()
    passed = asyncio.Event()

    def parse() -> bool:
        """True if the loop does other work while this runs."""
        return asyncio.run_coroutine_threadsafe(_set(passed), loop).result()

    assert ASIDE_BYTES == 16 * 1024
    assert await parse_aside(ASIDE_BYTES, parse)
    assert await parse_aside(ASIDE_BYTES - 1, asyncio.current_task) is asyncio.current_task()


async def _set(event: asyncio.Event) -> bool:
    event.set()
    return True
