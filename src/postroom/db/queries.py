"""Named statements: SQL is written in `queries.sql` and called by name.

A statement is a header, a sentence, and the SQL:

    -- name: find_delivery :maybe
    -- One delivery by its id.
    SELECT … WHERE id = :id

`:many | :one | :maybe | :exec` is the kind of result; calling a statement as another kind raises `TypeError`.
Parameters are named and become `$1, $2, …` in the order of their first appearance; a call may leave out `:now`, which
selects the database clock. `@room.` before a function's name is replaced by the room's schema on an application's
connection, and removed on our own, whose search path is the room.

A store names each statement's function in one line, by its kind of result:

    cancel_campaign = QUERIES["cancel_campaign"].has
    list_domains = QUERIES["list_domains"].many_as(model(CampaignDomain))
    list_letters = QUERIES["list_letters"].dict_as("id", model(Letter))
"""

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.resources import files
from operator import attrgetter, itemgetter
from typing import Any, Protocol, TypeVar

import asyncpg

from postroom.runtime.page import Examined, read_examined
from postroom.runtime.record import read_row

Result = TypeVar("Result")
Read = Callable[[asyncpg.Record], Result]
"""Makes a result of a row."""
Run = Callable[..., Coroutine[Any, Any, Result]]
"""Runs a statement on a connection, with the statement's parameters by name."""

_HEADER = re.compile(r"^-- name: (?P<name>\w+) :(?P<kind>many|one|maybe|exec)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_ARGUMENT = re.compile(r"\s*(?P<name>\w+ => (?:ARRAY\[)?)\$(?P<number>\d+)(?P<cast>[^,\s]*),?\s*")
_COMMENT_LINE = re.compile(r"^\s*--.*$", re.MULTILINE)


class Connection(Protocol):
    """The methods of a connection that statements use; asyncpg's connections and pooled connections have them."""

    async def execute(self, query: str, *args: Any) -> str: ...
    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]: ...
    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None: ...


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity: the key of two caches, for every mail
class Statement:
    """One named statement, ready to run."""

    name: str
    kind: str
    purpose: str
    sql: str
    parameters: tuple[str, ...]

    async def many(self, connection: Connection, **values: Any) -> list[asyncpg.Record]:
        return await connection.fetch(self.sql, *self._arguments("many", values))

    async def one(self, connection: Connection, **values: Any) -> asyncpg.Record:
        row = await connection.fetchrow(self.sql, *self._arguments("one", values))
        if row is None:
            raise LookupError(f"{self.name} returned no row")
        return row

    async def maybe(self, connection: Connection, **values: Any) -> asyncpg.Record | None:
        return await connection.fetchrow(self.sql, *self._arguments("maybe", values))

    async def exec(self, connection: Connection, **values: Any) -> int:
        """Run it and return the number of changed rows."""
        tag = await connection.execute(self.sql, *self._arguments("exec", values))
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def has(self, connection: Connection, **values: Any) -> bool:
        """Run a `:maybe` statement; True if it returned a row."""
        return await self.maybe(connection, **values) is not None

    def many_as(self, read: Read[Result]) -> Run[list[Result]]:
        """The statement as a store function that returns its rows, read."""

        async def run(connection: Connection, **values: Any) -> list[Result]:
            return [read(row) for row in await self.many(connection, **values)]

        return run

    def one_as(self, read: Read[Result]) -> Run[Result]:
        """The statement as a store function that returns its only row, read."""

        async def run(connection: Connection, **values: Any) -> Result:
            return read(await self.one(connection, **values))

        return run

    def maybe_as(self, read: Read[Result]) -> Run[Result | None]:
        """The statement as a store function that returns its row, read, or None."""

        async def run(connection: Connection, **values: Any) -> Result | None:
            row = await self.maybe(connection, **values)
            return None if row is None else read(row)

        return run

    def dict_as(self, key: str, read: Read[Result]) -> Run[dict[Any, Result]]:
        """The statement as a store function that returns its rows, read, by the value of one column."""

        async def run(connection: Connection, **values: Any) -> dict[Any, Result]:
            return {row[key]: read(row) for row in await self.many(connection, **values)}

        return run

    def search_as(self, read: Read[Result]) -> Run[Examined[Result]]:
        """The statement as a store function for `search_page`."""

        async def run(connection: Connection, **values: Any) -> Examined[Result]:
            return read_examined(await self.many(connection, **values), read)

        return run

    def _arguments(self, kind: str, values: Mapping[str, Any]) -> list[Any]:
        if kind != self.kind:
            raise TypeError(f"{self.name} is :{self.kind}, called as :{kind}")
        if len(values) != len(self.parameters):
            if "now" in self.parameters and "now" not in values:
                return self._arguments(kind, {**values, "now": None})
            raise TypeError(f"{self.name} takes {self.parameters}, got {tuple(values)}")
        return [values[name] for name in self.parameters]


def model(kind: type[Result]) -> Read[Result]:
    """Reads a row as this record; see `read_row`."""
    return partial(read_row, kind)


def column(name: str, kind: Callable[[Any], Result]) -> Read[Result]:
    """Reads one column of a row as this type."""
    return lambda row: kind(row[name])


def columns(*names: str) -> Read[Any]:
    """Reads these columns of a row as a tuple; one column as its value."""
    return itemgetter(*names)


def arrays(records: Sequence[Any], *names: str, **attributes: str) -> dict[str, list[Any]]:
    """The parameters of a statement that takes many records as arrays, one for each attribute.

    `attributes` differ from their parameters: `arrays(lines, "topic", events="lag_events")`.
    """
    chosen = dict.fromkeys(names) | attributes
    return {name: list(map(attrgetter(attribute or name), records)) for name, attribute in chosen.items()}


@dataclass(frozen=True, slots=True)
class Queries:
    """All statements of one capability: for our own connections, and templates for other connections."""

    package: str
    _own: Mapping[str, Statement] = field(repr=False)
    _templates: Mapping[str, Statement] = field(repr=False)

    def __getitem__(self, name: str) -> Statement:
        return self._own[name]

    def __iter__(self) -> Iterator[Statement]:
        return iter(self._own.values())

    def in_room(self, name: str, room: str) -> Statement:
        return _in_room(self._templates[name], room)

    def call_in_room(self, name: str, room: str, arguments: tuple[str, ...]) -> Statement:
        """A call of one function, in a room, with only these arguments; the function's defaults apply to the others.

        A driver takes as long to encode ten NULLs as to encode a mail.
        """
        return _call_in_room(self._templates[name], room, arguments)


@lru_cache(maxsize=256)  # applications send to few rooms: one text per statement and room, which asyncpg has prepared
def _in_room(template: Statement, room: str) -> Statement:
    """The statement for a connection with another search path."""
    quoted = '"' + room.replace('"', '""') + '".'
    return replace(template, sql=template.sql.replace("@room.", quoted))


@lru_cache(maxsize=256)  # as many as asyncpg prepares: an application sends few kinds of mail
def _call_in_room(template: Statement, room: str, arguments: tuple[str, ...]) -> Statement:
    sql = _in_room(template, room).sql
    found = list(_ARGUMENT.finditer(sql))
    names = [template.parameters[int(argument["number"]) - 1] for argument in found]
    passed = [(name, argument) for name, argument in zip(names, found, strict=True) if name in arguments]
    lines = (f"{argument['name']}${place}{argument['cast']}" for place, (_, argument) in enumerate(passed, start=1))
    call = sql[: found[0].start()] + ", ".join(lines) + sql[found[-1].end() :]
    return replace(template, sql=call, parameters=tuple(name for name, _ in passed))


def load(package: str, file: str = "queries.sql") -> Queries:
    """Load a capability's statements; a duplicate or a malformed block raises at import."""
    templates: dict[str, Statement] = {}
    for statement in _parse(files(package).joinpath(file).read_text("utf-8")):
        if statement.name in templates:
            raise ValueError(f"{package}: statement {statement.name} is defined twice")
        templates[statement.name] = statement
    own = {
        name: Statement(s.name, s.kind, s.purpose, s.sql.replace("@room.", ""), s.parameters)
        for name, s in templates.items()
    }
    return Queries(package, own, templates)


def _parse(text: str) -> Iterator[Statement]:
    headers = list(_HEADER.finditer(text))
    for index, header in enumerate(headers):
        end = headers[index + 1].start() if index + 1 < len(headers) else len(text)
        block = text[header.end() : end].strip()
        purpose = " ".join(line[3:] for line in block.splitlines() if line.startswith("-- "))
        names: list[str] = []

        def number(match: re.Match[str], names: list[str] = names) -> str:
            if match[1] not in names:
                names.append(match[1])
            return f"${names.index(match[1]) + 1}"

        sql = _PARAMETER.sub(number, _COMMENT_LINE.sub("", block)).strip().rstrip(";")
        yield Statement(header["name"], header["kind"], purpose, sql, tuple(names))
