"""Endpoints that are one service call: the parameters of the function and the form of its result."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.runtime.endpoint import Call
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import Shape, response
from postroom.runtime.service_endpoint import serve

ROW: Any = {"scope": None, "tag": "tests"}


@dataclass(frozen=True, slots=True)
class Shelf:
    """A record of the tests."""

    id: int
    secret: str = ""


@dataclass(frozen=True, slots=True)
class ShelfFilter:
    """Selects shelves."""

    name: str | None = None


class ShelfQuery(PageQuery, frozen=True, kw_only=True):
    """Filter and page of shelves."""

    name: str | None = None
    actor: str | None = None


class NewShelf(Shape, frozen=True, kw_only=True):
    """A shelf to make."""

    size: int


Shown = response(Shelf, "Shown", hide=("secret",))


@dataclass
class FakeRoom:
    """A room whose pool is only passed on."""

    pool: str = "pool"


def a_call(**values: Any) -> Call:
    room = cast("Room", FakeRoom())
    return Call(room=room, tools={}, asgi={}, headers={}, client="", request_id="", actor="key:1:ci", **values)


async def test_parameters_are_found_by_name_and_type() -> None:
    """Path, query, body and `given` fill a function; a filter gets its fields from the query."""
    seen: dict[str, Any] = {}

    async def change(
        pool: Pool, shelf_id: int, chosen: ShelfFilter, *, new: NewShelf, limit: int, extra: str, actor: str
    ) -> None:
        seen.update(pool=pool, shelf_id=shelf_id, chosen=chosen, new=new, limit=limit, extra=extra, actor=actor)

    async def extra(_call: Call) -> str:
        return "awaited"

    endpoint = serve(
        "POST",
        "/v1/shelves/{shelf_id:int}",
        change,
        "Change a shelf.",
        query=PageQuery,
        body=NewShelf,
        answers={204: None},
        given={"extra": extra, "chosen": lambda _call: ShelfFilter("top")},
        **ROW,
    )
    answer = await endpoint.handler(a_call(path={"shelf_id": 7}, query=PageQuery(limit=3), body=NewShelf(size=2)))
    assert (answer.status, answer.value, endpoint.handler.__name__) == (204, b"", "change")
    assert seen == {
        "pool": "pool", "shelf_id": 7, "chosen": ShelfFilter("top"), "new": NewShelf(size=2), "limit": 3,
        "extra": "awaited", "actor": "key:1:ci",
    }  # fmt: skip


async def test_actor_of_a_query_is_not_the_actor_of_the_call() -> None:
    """A listing may filter by actor."""

    async def list_shelves(_pool: Pool, chosen: ShelfFilter, *, actor: str | None, cursor: str | None) -> Any:
        return [Shelf(1, f"{chosen.name} {actor} {cursor}")], "more"

    endpoint = serve(
        "GET", "/v1/shelves", list_shelves, "List shelves.", query=ShelfQuery, answers={200: Page[Shelf]}, **ROW
    )
    answer = await endpoint.handler(a_call(query=ShelfQuery(name="top", actor="cli:ada")))
    assert answer.value == Page([Shelf(1, "top cli:ada None")], "more")


async def test_result_has_the_declared_form() -> None:
    """A derived response hides fields of the model; a list without a cursor is one page."""

    async def list_all(_pool: Pool) -> list[Shelf]:
        return [Shelf(1, "hidden")]

    endpoint = serve("GET", "/v1/shelves", list_all, "List shelves.", answers={200: page_of(Shown)}, **ROW)
    assert (await endpoint.handler(a_call())).value == Page([Shown(id=1)], None)


def test_parameter_that_nothing_fills_is_an_error() -> None:
    """It is found when the module is imported."""

    async def move(_pool: Pool, shelf_id: int, *, to: str) -> None:
        raise AssertionError((shelf_id, to))

    with pytest.raises(TypeError, match="nothing fills its parameter to at /v1/shelves/"):
        serve("POST", "/v1/shelves/{shelf_id:int}/move", move, "Move a shelf.", answers={204: None}, **ROW)
