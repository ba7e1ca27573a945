"""Shared by endpoints that speak another vendor's protocol: reading and decoding a body.

The body is streamed and read after authentication, so that an unknown client cannot make the process hold one.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from postroom.errors import BadInput
from postroom.runtime.endpoint import MEGABYTE, Call
from postroom.runtime.wrong_field import find_wrong_field

WRITE = "deliveries:write"
READ = "deliveries:read"
OPERATE = "deliveries:operate"

Kind = TypeVar("Kind")


async def read_body(call: Call) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    limit = call.room.settings.max_body_mb
    parts: list[bytes] = []
    size = 0
    assert call.chunks is not None, "the endpoint streams"
    async for part in call.chunks:
        size += len(part)
        if size > limit * MEGABYTE:
            raise BadInput.of("body", f"is larger than {limit} MB")
        parts.append(part)
    return b"".join(parts)


def once(field: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Pairs by their names. A repeated name is `BadInput`, because a mail can carry only one of them."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name.lower() in (each.lower() for each in found):
            raise BadInput.of(field, f"{name[:100]} is given twice")
        found[name] = value
    return found


def decode(raw: bytes, kind: type[Kind]) -> Kind:
    """Decode JSON into a shape; invalid data is `BadInput`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        path, message = find_wrong_field(str(error), kind)
        raise BadInput.of(path or "body", message) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadInput.of("body", "is not JSON") from None
