"""Endpoints that are one service call, declared as a row: the function, and the form of its result.

A parameter of the function gets the equally named value of the path, the query or the body; otherwise `actor` is the
name of the key. A parameter of the body's type gets the body; a filter, which is a dataclass, gets its fields from the
query. All others are in `given`. A parameter that nothing fills fails when the module is imported, not in a request.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from inspect import isawaitable, signature
from operator import attrgetter
from typing import Any, get_args, get_origin, get_type_hints

from postroom.runtime.endpoint import PARAMETER, Answer, Call, Endpoint
from postroom.runtime.page import Page
from postroom.runtime.record import answer, part

Read = Callable[[Call], Any]
Shape = Callable[[Any], Any]


def serve(  # noqa: PLR0913 - an endpoint as data
    method: str,
    path: str,
    act: Callable[..., Awaitable[Any]],
    summary: str,
    *,
    answers: Mapping[int, Any],
    name: str = "",
    given: Mapping[str, Read] | None = None,
    shape: Shape | None = None,
    **more: Any,
) -> Endpoint:
    """An endpoint that calls `act` with the pool and responds with its result in the one form of `answers`.

    `name` is the name of the operation if it is not the function's. `shape` makes the response of a record where
    `answer` cannot; it may be a coroutine function.
    """
    sources = dict(_sources(act, path, more.get("query"), more.get("body"), given or {}))
    ((status, kind),) = answers.items()
    form = _form(kind, shape)

    async def handler(call: Call) -> Answer:
        values = {name: read(call) for name, read in sources.items()}
        values |= {name: await value for name, value in values.items() if isawaitable(value)}
        shaped = form(await act(call.room.pool, **values))
        return Answer(await shaped if isawaitable(shaped) else shaped, status)

    handler.__name__ = name or act.__name__
    return Endpoint(method, path, handler, summary, answers=answers, **more)


def _sources(
    act: Callable[..., Any], path: str, query: Any, body: Any, given: Mapping[str, Read]
) -> Iterator[tuple[str, Read]]:
    """How each parameter of the function is read from a call."""
    known: dict[str, Read] = {
        "actor": attrgetter("actor"),
        **{name: attrgetter(f"body.{name}") for name in getattr(body, "__struct_fields__", ())},
        **{name: attrgetter(f"query.{name}") for name in getattr(query, "__struct_fields__", ())},
        **{name: partial(_in_path, name) for name, _kind in PARAMETER.findall(path)},
        **given,
    }
    hints = get_type_hints(act)
    for name, parameter in list(signature(act).parameters.items())[1:]:  # the first is the pool
        read = known.get(name) or _by_type(hints[name], query, body)
        if read is not None:
            yield name, read
        elif parameter.default is parameter.empty:
            raise TypeError(f"{act.__qualname__}: nothing fills its parameter {name} at {path}")


def _in_path(name: str, call: Call) -> Any:
    return call.path[name]


def _by_type(hint: Any, query: Any, body: Any) -> Read | None:
    if body is not None and hint is body:
        return attrgetter("body")
    is_filter = query is not None and isinstance(hint, type) and is_dataclass(hint)
    return (lambda call: part(hint, call.query)) if is_filter else None


def _form(kind: Any, shape: Shape | None) -> Shape:
    if kind is None:
        return lambda _result: b""
    if get_origin(kind) is Page:
        return _page_form(_form(get_args(kind)[0], shape))
    if shape is not None:
        return shape
    # A type that `response` derived has no instances of its own yet: services return the model.
    return (lambda record: answer(kind, record)) if hasattr(kind, "names") else lambda record: record


def _page_form(form: Shape) -> Shape:
    def page(found: Any) -> Page[Any]:
        items, cursor = found if isinstance(found, tuple) else (found, None)
        return Page([form(item) for item in items], cursor)

    return page
