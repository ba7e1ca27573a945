"""Runs coroutines without an event loop, so that synchronous and asynchronous callers share one implementation.

A coroutine that awaits nothing but functions that never suspend, such as the adapter of a synchronous driver, ends at
its first step.
"""

from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar, cast

Result = TypeVar("Result")


def run_blocking(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast("Result", done.value)
    work.close()
    raise RuntimeError("The coroutine waits for an event loop.")


def iterate_blocking(generator: AsyncGenerator[Result, None]) -> Iterator[Result]:
    """Iterate over an asynchronous generator that never suspends."""
    try:
        while True:
            yield run_blocking(generator.__anext__())
    except StopAsyncIteration:
        return
    finally:
        run_blocking(generator.aclose())
