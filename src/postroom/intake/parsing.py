"""Parse large submitted mail in child processes, so that it blocks no other connection (`runtime.bounded`)."""

import atexit
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ParamSpec

from postroom.delivery.check import CheckedRequest
from postroom.errors import BadInput
from postroom.post.address import Address
from postroom.runtime.bounded import Children, Exceeded, Limits

ASIDE_BYTES = 4 * 1024
"""A child process parses messages from this size on; smaller ones take less than 15 ms (worst case `To: ;;;;…`)."""
LIMITS = Limits(memory_bytes=1024 * 1024 * 1024, cpu_s=10)
"""A message of 35 MB with one attachment needs 420 MB: the parser holds each line as an object."""

Arguments = ParamSpec("Arguments")
_children = Children(processes=2, limits=LIMITS)
atexit.register(_children.close)


@dataclass(frozen=True, slots=True)
class RequestCopies:
    """Requests that differ only in their recipient and key; their content of up to 35 MB is stored once."""

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
    """Parse the requests of a message, in a child process if it has `ASIDE_BYTES` or more.

    `key`, the name of an API key, is the unit of fairness: messages of one key do not occupy all child processes.
    """
    if size < ASIDE_BYTES:
        return read(*arguments, **named).requests()
    try:
        return (await _children.call(key, read, *arguments, **named)).requests()
    except Exceeded:
        raise BadInput.of("message", "is too complex to be read; simplify its structure or headers") from None
