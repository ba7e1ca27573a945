"""Every named statement against the migrated database and its store function."""

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import postroom
from postroom.db import queries
from postroom.db.room import Room

PACKAGE = Path(postroom.__file__).parent


def capabilities() -> list[str]:
    """Every package with statements, dotted."""
    found = sorted(path.parent for path in PACKAGE.rglob("queries.sql"))
    return [".".join(("postroom", *path.relative_to(PACKAGE).parts)) for path in found]


def statements() -> list[tuple[str, queries.Statement]]:
    return [(package, statement) for package in capabilities() for statement in queries.load(package)]


def store_of(package: str) -> ModuleType:
    """The module that runs a package's statements: `store`, except for db, which has none."""
    return import_module("postroom.db.migrate" if package == "postroom.db" else f"{package}.store")


@pytest.mark.parametrize("package, statement", statements(), ids=lambda value: getattr(value, "name", value))
async def test_a_statement_prepares(package: str, statement: queries.Statement, shared_room: Room) -> None:
    """The database accepts the statement and its number of parameters."""
    async with shared_room.pool.acquire() as connection:
        prepared = await connection.prepare(statement.sql)
        takes, returns_rows = len(prepared.get_parameters()), bool(prepared.get_attributes())
    assert takes == len(statement.parameters)
    assert returns_rows or statement.kind == "exec"


@pytest.mark.parametrize("package", capabilities())
def test_statements_are_alphabetical_and_explained(package: str) -> None:
    """Statements are sorted by name, and each has a description."""
    found = list(queries.load(package))
    assert [statement.name for statement in found] == sorted(statement.name for statement in found)
    assert all(statement.purpose for statement in found)


@pytest.mark.parametrize("package", [name for name in capabilities() if name != "postroom.db"])
def test_each_statement_has_its_store_function_and_vice_versa(package: str) -> None:
    """`store.py` has a function for each statement, and no other."""
    store = store_of(package)
    functions = {name for name, value in vars(store).items() if inspect.iscoroutinefunction(value)}
    assert functions == {statement.name for statement in queries.load(package)}


@pytest.mark.parametrize(
    "package, statement",
    [pair for pair in statements() if pair[0] != "postroom.db"],
    ids=lambda value: getattr(value, "name", value),
)
def test_parameters_are_the_store_function_s_arguments(package: str, statement: queries.Statement) -> None:
    """A statement and its store function have the same parameters."""
    function = getattr(store_of(package), statement.name)
    taken = inspect.signature(function).parameters.values()
    named = {p.name for p in taken if p.kind is inspect.Parameter.KEYWORD_ONLY} - {"room"}
    takes_columns = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken)
    assert named <= set(statement.parameters)
    assert takes_columns or named == set(statement.parameters)
