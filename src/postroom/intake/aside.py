"""Parsing that other connections do not wait for."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

ASIDE_BYTES = 16 * 1024
"""From this size on a message is parsed in a thread; below, the parser takes less than 10 ms."""

Arguments = ParamSpec("Arguments")
Parsed = TypeVar("Parsed")


async def parse_aside(
    size: int, parse: Callable[Arguments, Parsed], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Parsed:
    """Call `parse`, in a thread if the input has `ASIDE_BYTES` or more."""
    if size < ASIDE_BYTES:
        return parse(*arguments, **named)
    return await asyncio.to_thread(parse, *arguments, **named)
