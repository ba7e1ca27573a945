"""Pages of lists: one order, one cursor, one row more than requested.

A cursor is a position in a list as a short opaque string that callers send back unchanged.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from postroom.errors import BadInput
from postroom.runtime.record import Shape

Item = TypeVar("Item")

Limit = Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum number of items in a page.")]
Cursor = Annotated[str, msgspec.Meta(max_length=500, description="`next_cursor` of the previous page.")]


class PageQuery(Shape, frozen=True, kw_only=True):
    """Query parameters of a page."""

    cursor: Cursor | None = None
    limit: Limit = 50


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """A page of a list as JSON. `next_cursor` is the cursor of the next page, null on the last."""

    items: Sequence[Item]
    next_cursor: str | None


Found = tuple[list[Item], str | None]
"""The items of a page, and the cursor of the next one."""


def page_of(kind: Any) -> Any:
    """`Page[kind]` of a derived type, which a type checker does not accept as a type."""
    return Page[kind]


Order = Mapping[str, tuple[str, Any]]
"""Parameter of a listing's statement → the attribute of an item that the next page continues after, and its type."""

NEWEST_FIRST: Order = {"before_id": ("id", int)}
OLDEST_FIRST: Order = {"after_id": ("id", int)}


async def read_page(
    statement: Callable[..., Awaitable[list[Item]]],
    connection: Any,
    cursor: str | None,
    limit: int,
    *,
    order: Order = NEWEST_FIRST,
    **parameters: Any,
) -> Found[Item]:
    """The page after `cursor`. `statement` is a store function that takes `page_limit` and the order's parameters."""
    kinds = tuple(kind for _name, kind in order.values())
    position = decode_cursor(cursor, tuple.__class_getitem__(kinds)) if cursor else [None] * len(order)
    # One row more than requested shows that there is a next page.
    found = await statement(connection, page_limit=limit + 1, **dict(zip(order, position, strict=True)), **parameters)
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    return found[:limit], encode_cursor(*(attrgetter(name)(last) for name, _kind in order.values()))


def encode_cursor(*position: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(cursor: str, shape: Any) -> Any:
    """The position of a cursor, checked against its type, such as `tuple[int]`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=shape)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise BadInput.of("cursor", "is not a cursor of this list") from error
