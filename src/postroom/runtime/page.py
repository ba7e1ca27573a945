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

EXAMINED = 5_000
"""Most rows that one page of a search reads. Reading that many takes about 10 ms."""

BIGINT_BITS = 63
"""Bits of the largest number in a cursor: PostgreSQL has no larger ids."""

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
    # One row more than requested shows that there is a next page.
    found = await statement(connection, page_limit=limit + 1, **_position(cursor, order), **parameters)
    if len(found) <= limit:
        return found, None
    return found[:limit], _cursor_after(found[limit - 1], order)


Examined = tuple[list[Item], Item | None]
"""The matching items of a search, and the item after which the search continues; None at the end of the list."""


def read_examined(rows: Sequence[Any], read: Callable[[Any], Item]) -> Examined[Item]:
    """Rows of a statement for `search_page`: `is_match` is false for a row that only ends the search."""
    found = [read(row) for row in rows if row["is_match"]]
    return found, read(rows[-1]) if rows and rows[-1]["is_last"] else None


async def search_page(
    statement: Callable[..., Awaitable[Examined[Item]]],
    connection: Any,
    cursor: str | None,
    limit: int,
    *,
    order: Order = NEWEST_FIRST,
    bound: int = EXAMINED,
    **parameters: Any,
) -> Found[Item]:
    """The page after `cursor` of a list whose filters have no common index.

    `statement` finds rows by the index of one filter, applies the others to at most `bound` rows, and returns the last
    of them also if it does not match. So a page may have fewer items than `limit`, or none, and yet a cursor that
    continues the search: its cost does not depend on the number of rows.

    In the SQL each filter that can find rows is one part of a UNION ALL, and the values decide which part has rows: a
    cached plan is as good as one for the values. `x BETWEEN :x AND :x ORDER BY x, id` keeps the planner from reading
    all rows in the order of their ids, which it prefers to `x = :x` because it does not know that a value is rare.
    """
    position = _position(cursor, order)
    found, last = await statement(connection, page_limit=limit + 1, bound=bound, **position, **parameters)
    if len(found) > limit:
        return found[:limit], _cursor_after(found[limit - 1], order)
    return found, None if last is None else _cursor_after(last, order)


def _position(cursor: str | None, order: Order) -> dict[str, Any]:
    """The parameters of a statement that continue after a cursor."""
    kinds = tuple(kind for _name, kind in order.values())
    position = decode_cursor(cursor, tuple.__class_getitem__(kinds)) if cursor else [None] * len(order)
    return dict(zip(order, position, strict=True))


def _cursor_after(item: Any, order: Order) -> str:
    return encode_cursor(*(attrgetter(name)(item) for name, _kind in order.values()))


def encode_cursor(*position: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(cursor: str, shape: Any) -> Any:
    """The position of a cursor, checked against its type, such as `tuple[int]`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        position = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=shape)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise BadInput.of("cursor", "is not a cursor of this list") from error
    if any(isinstance(each, int) and each.bit_length() > BIGINT_BITS for each in position):
        raise BadInput.of("cursor", "is not a cursor of this list")
    return position
