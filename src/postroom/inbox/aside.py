"""Read hostile mail in child processes with limits (`runtime.bounded`), so that no mail delays other clients.

In a thread it would: the interpreter lock is held by a regular expression and by most of a parser. A message that
exceeds the limits raises `MessageTooComplex`; its raw bytes can still be read.
"""

import atexit
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import structlog

from postroom.inbox.errors import MessageTooComplex
from postroom.inbox.reader import Outline, ReadMessage, outline_of, read_message
from postroom.runtime.bounded import Children, Exceeded, Limits

ASIDE_BYTES = 4 * 1024
"""A child process reads messages from this size on; smaller ones take less than 15 ms."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_children = Children(processes=2, limits=Limits(memory_bytes=1024 * 1024 * 1024, cpu_s=10))
atexit.register(_children.close)

_log = structlog.get_logger()


async def aside(
    size: int, function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """The result of a function of hostile content of this size. Raises `MessageTooComplex`."""
    if size < ASIDE_BYTES:
        return function(*arguments, **named)
    try:
        return await _children.call(None, function, *arguments, **named)
    except Exceeded:
        raise MessageTooComplex from None


async def read_aside(raw: bytes) -> ReadMessage:
    return await aside(len(raw), read_message, raw)


async def outline_aside(raw: bytes) -> Outline:
    """The outline of a message; one that cannot be read has none, and is stored all the same."""
    try:
        return await aside(len(raw), outline_of, raw)
    except MessageTooComplex:
        _log.warning("capture_unreadable", bytes=len(raw))
        return Outline(subject="", author="", content="", attachment_count=0)
