"""Named statements: SQL is written in `queries.sql` and called by name.

A statement is a header, a sentence, and the SQL:

    -- name: find_delivery :maybe
    -- One delivery by its id.
    SELECT … WHERE id = :id

`:many | :one | :maybe | :exec` is the kind of result; calling a statement as another kind raises `TypeError`.
Parameters are named and become `$1, $2, …` in the order of their first appearance. `@room.` before a function's name
is replaced by the room's schema on an application's connection, and removed on our own, whose search path is the room.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Protocol

import asyncpg

_HEADER = re.compile(r"^-- name: (?P<name>\w+) :(?P<kind>many|one|maybe|exec)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_ARGUMENT = re.compile(r"\s*(?P<name>\w+) => \$(?P<number>\d+)(?P<cast>[^,\s]*),?\s*")
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

    def _arguments(self, kind: str, values: Mapping[str, Any]) -> list[Any]:
        if kind != self.kind:
            raise TypeError(f"{self.name} is :{self.kind}, called as :{kind}")
        if len(values) != len(self.parameters):
            raise TypeError(f"{self.name} takes {self.parameters}, got {tuple(values)}")
        return [values[name] for name in self.parameters]


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
    lines = (f"{argument['name']} => ${place}{argument['cast']}" for place, (_, argument) in enumerate(passed, start=1))
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
