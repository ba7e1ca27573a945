"""Every named statement against the migrated database and its store function."""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
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


@cache
def statements() -> list[tuple[str, queries.Statement]]:
    return [(package, statement) for package in capabilities() for statement in queries.load(package)]


def store_of(package: str) -> ModuleType:
    """The module that runs a package's statements: `store`, except for db, which has none."""
    return import_module("postroom.db.migrate" if package == "postroom.db" else f"{package}.store")


def defaults_of(statement: queries.Statement) -> set[str]:
    """The parameters that a call may leave out: `now`, and those with a default of the store function."""
    package = next(package for package, each in statements() if each is statement)
    taken = inspect.signature(getattr(store_of(package), statement.name)).parameters.values()
    return {"now"} | {each.name for each in taken if each.default is not inspect.Parameter.empty}


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
    takes_columns = any(p.kind in {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL} for p in taken)
    assert named <= set(statement.parameters)
    assert takes_columns or named == set(statement.parameters)


@cache
def store_functions() -> dict[str, queries.Statement]:
    """Every statement by the dotted path of its store function."""
    return {f"{package}.store.{statement.name}": statement for package, statement in statements()}


def calls_of_statements(tree: ast.Module) -> Iterator[tuple[queries.Statement, ast.Call]]:
    """The calls of store functions in a module, `store.find_event(…)` or `find_event(…)`, with their statements."""
    nodes = list(ast.walk(tree))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    paths = {name.asname or name.name: f"{node.module}.{name.name}" for node in imports for name in node.names}
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                path = f"{paths.get(module)}.{name}"
            case ast.Call(func=ast.Name(id=name)):
                path = paths.get(name, "")
            case _:
                continue
        if statement := store_functions().get(path):
            yield statement, node


def passes_the_parameters(statement: queries.Statement, call: ast.Call, defaults: set[str]) -> bool:
    passed = {keyword.arg for keyword in call.keywords} - {"room"}
    takes = set(statement.parameters)
    if any(isinstance(argument, ast.Starred) for argument in call.args):  # `*call`, a statement with its arguments
        return not passed
    if None in passed:  # `**columns`
        return passed - {None} <= takes
    return takes - defaults <= passed <= takes


def test_calls_pass_the_parameters_of_their_statement() -> None:
    """A call of a store function names each parameter of its statement; a type checker does not see them."""
    seen, wrong = 0, []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        for statement, call in calls_of_statements(ast.parse(text if "store" in text else "")):
            seen += 1
            if not passes_the_parameters(statement, call, defaults_of(statement)):
                wrong.append(f"{path.relative_to(PACKAGE)}:{call.lineno}: {statement.name}")
    assert seen > 300
    assert not wrong


def test_a_call_with_an_unknown_parameter_is_found() -> None:
    """The check of calls reports a misspelled and a missing parameter, and accepts an omitted `now`."""
    source = "from postroom.senders import store\nstore.find_sender(c, {})"
    found = {
        words: [
            passes_the_parameters(statement, call, defaults_of(statement))
            for statement, call in calls_of_statements(ast.parse(source.format(words)))
        ]
        for words in ("id=1", "ids=1", "")
    }
    assert found == {"id=1": [True], "ids=1": [False], "": [False]}
