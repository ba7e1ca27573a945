"""What endpoints that speak somebody else's protocol share: who is asking, and a body read only after that is known.

Such an endpoint is public as far as `postroom.http` is concerned, because it has its own way of signing in and its own
words for refusing. Its body is streamed, so that whoever is not known cannot make us hold one.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import msgspec

from postroom.errors import BadInput
from postroom.runtime.endpoint import Call
from postroom.runtime.wrong_field import find_wrong_field

WRITE = "deliveries:write"
READ = "deliveries:read"
OPERATE = "deliveries:operate"

_MEGABYTE = 1024 * 1024
Kind = TypeVar("Kind")


class Caller(Protocol):
    """An API key: who asks, and what he may do."""

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def actor(self) -> str: ...

    def allows(self, scope: str) -> bool: ...


Authenticate = Callable[[str | None, str], Awaitable[Caller]]
"""From an `Authorization` header and a scope to the key; raises `Unauthenticated` and `ScopeMissing`."""


async def read_body(call: Call) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    limit = call.room.settings.max_body_mb
    parts: list[bytes] = []
    size = 0
    assert call.chunks is not None, "the endpoint streams"
    async for part in call.chunks:
        size += len(part)
        if size > limit * _MEGABYTE:
            raise BadInput.of("body", f"is larger than {limit} MB")
        parts.append(part)
    return b"".join(parts)


def once(field: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Pairs by their names. Of two with one name a mail could carry only one, so that is `BadInput`."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name.lower() in (each.lower() for each in found):
            raise BadInput.of(field, f"{name[:100]} is given twice")
        found[name] = value
    return found


def decode(raw: bytes, kind: type[Kind]) -> Kind:
    """JSON as a shape; what is wrong with it is `BadInput`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        path, message = find_wrong_field(str(error), kind)
        raise BadInput.of(path or "body", message) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadInput.of("body", "is not JSON") from None
