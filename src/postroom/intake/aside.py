"""Read submitted mail so that other connections do not wait: see `postroom.runtime.bounded`."""

import atexit
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ParamSpec

from postroom.delivery.check import CheckedRequest
from postroom.errors import BadInput
from postroom.post.address import Address
from postroom.runtime.bounded import Children, Exceeded, Limits

ASIDE_BYTES = 4 * 1024
"""From this size on a child process reads a message; below, reading takes less than 15 ms (`To: ;;;;…`)."""
LIMITS = Limits(memory_bytes=1024 * 1024 * 1024, cpu_s=10)
"""A message of 35 MB with one attachment needs 420 MB: the parser holds each line as an object."""

Arguments = ParamSpec("Arguments")
_children = Children(processes=2, limits=LIMITS)
atexit.register(_children.close)


@dataclass(frozen=True, slots=True)
class RequestCopies:
    """Requests that differ only in their recipient and key; content of 35 MB is not repeated for each of them."""

    first: CheckedRequest
    others: list[tuple[tuple[Address, ...], str | None]]

    @classmethod
    def of(cls, requests: list[CheckedRequest]) -> "RequestCopies":
        first, *others = requests
        return cls(first, [(each.to, each.idempotency_key) for each in others])

    def requests(self) -> list[CheckedRequest]:
        return [self.first, *(replace(self.first, to=to, idempotency_key=key) for to, key in self.others)]


async def read_aside(
    size: int,
    key: str,
    read: Callable[Arguments, RequestCopies],
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> list[CheckedRequest]:
    """The requests of a message, read in a child process if it has `ASIDE_BYTES` or more.

    Messages of one key, the name of an API key, do not occupy all child processes.
    """
    if size < ASIDE_BYTES:
        return read(*arguments, **named).requests()
    try:
        return (await _children.call(key, read, *arguments, **named)).requests()
    except Exceeded:
        raise BadInput.of("message", "is too complex to be read; simplify its structure or headers") from None
