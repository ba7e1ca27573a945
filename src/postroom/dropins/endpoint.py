"""Shared by endpoints that speak another vendor's protocol: reading and decoding a body.

The body is streamed and read after authentication, so that an unknown client cannot make the process hold one.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from postroom.errors import BadInput
from postroom.runtime.endpoint import MEGABYTE, Call
from postroom.runtime.wrong_field import find_wrong_field

WRITE = "deliveries:write"
READ = "deliveries:read"
OPERATE = "deliveries:operate"

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class HashedBody:
    """A body, its size and its SHA-256 in hexadecimal; without `raw` if it was too large to be held."""

    raw: bytes | None
    size: int
    sha256: str


async def read_body(call: Call) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    return b"".join([part async for part in _parts(call)])


async def read_hashed(call: Call, *, most_held: int | None = None) -> HashedBody:
    """The body and its hash. A body with more than `most_held` bytes is hashed and dropped while it arrives."""
    digest, size = hashlib.sha256(), 0
    parts: list[bytes] = []
    async for part in _parts(call):
        digest.update(part)
        size += len(part)
        if most_held is None or size <= most_held:
            parts.append(part)
        else:
            parts.clear()
    is_whole = most_held is None or size <= most_held
    return HashedBody(b"".join(parts) if is_whole else None, size, digest.hexdigest())


async def _parts(call: Call) -> AsyncIterator[bytes]:
    limit = call.room.settings.max_body_mb
    size = 0
    assert call.chunks is not None, "the endpoint streams"
    async for part in call.chunks:
        size += len(part)
        if size > limit * MEGABYTE:
            raise BadInput.of("body", f"is larger than {limit} MB")
        yield part


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
