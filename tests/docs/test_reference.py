"""The reference says what the code says: endpoints, commands, errors, metrics, parameters, settings, links."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer
from tests.support.http import open_browser

from postroom.cli import COMMANDS, GROUPS, build
from postroom.db.room import Room
from postroom.errors import PostroomError, list_errors
from postroom.http.problems import STATUS
from postroom.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "postroom"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))

_ENDPOINT = re.compile(r"\| `[A-Z]+ /\S*` \|")
_OPTION = re.compile(r"^\| `(--[\w-]+)` \| (.*?) *\|$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TOLD = re.compile(r"(?:`|SELECT |FROM )(?:postroom\.)?(\w+)(?:\(|` \| `p_)")  # a call, or a row with its parameters
_LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")
_SUFFIXES = {"Counter": "_total", "Gauge": "", "Histogram": ""}
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1), ("ms", 0.001))


def page(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


# --- HTTP ----------------------------------------------------------------------------


def endpoint_rows(document: dict[str, Any]) -> list[str]:
    """The rows http.md must have: endpoint, scope and sentence, as the OpenAPI document says them."""
    return [
        f"| `{method.upper()} {path}` | {scope_of(operation)} | {operation['summary']} |"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def scope_of(operation: dict[str, Any]) -> str:
    found = re.search(r"`\S+`", operation.get("description", ""))
    return found[0] if found else "none"


async def test_every_endpoint_is_in_the_reference(room: Room) -> None:
    """http.md has a row per endpoint of the OpenAPI document, and no other."""
    expected = endpoint_rows((await (await open_browser(room)).get("/openapi.json")).json)
    written = [line for line in page("http.md").splitlines() if _ENDPOINT.match(line)]
    assert sorted(written) == sorted(expected), "the rows should be:\n" + "\n".join(expected)


# --- the command line ----------------------------------------------------------------


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, those in groups too, and those in groups of groups."""
    for entry in (*COMMANDS, *GROUPS):
        found: Any = typer.main.get_command(build([entry.name]))
        yield from below(f"postroom {entry.name}", found.commands[entry.name])


def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The command, or in its stead those of the group that it is."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part, inner in command.commands.items():
        yield from below(f"{name} {part}", inner)


def cli_sections() -> dict[str, str]:
    parts = re.split(r"^### `(postroom [^`]+)`$", page("cli.md"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


SHARED = frozenset({"--json", "--limit", "--cursor", "--help"})  # explained once, at the top of the page


def options(command: Any) -> list[Any]:
    return [
        parameter
        for parameter in command.params
        if parameter.opts[0].startswith("--") and parameter.opts[0] not in SHARED and not parameter.hidden
    ]


def section(name: str, command: Any) -> str:
    """What cli.md could say about a command that it lacks."""
    about = (command.help or "").strip()
    rows = [f"| `{option.opts[0]}` | {option.help or ''} |" for option in options(command)]
    table = "\n\n| option | does |\n|---|---|\n" + "\n".join(rows) if rows else ""
    return f"### `{name}`\n\n{about}{table}\n"


def test_every_command_is_in_the_reference() -> None:
    """cli.md has a section per command, with its options and their sentences, and no other."""
    known, written = dict(commands()), cli_sections()
    missing = [section(name, command) for name, command in known.items() if name not in written]
    assert not missing, "cli.md lacks:\n" + "\n".join(missing)
    assert set(written) == set(known)
    for name, command in known.items():
        rows = dict(_OPTION.findall(written[name]))
        asked = {option.opts[0]: option.help for option in options(command)}
        assert rows == asked, name
        unexplained = [each.opts[0] for each in command.params if not each.hidden and not each.help]
        assert unexplained == [], f"{name} --help does not explain {unexplained}"


# --- errors --------------------------------------------------------------------------


def kinds() -> list[type[PostroomError]]:
    return [kind for kind in list_errors() if kind is not PostroomError and kind.__module__.startswith("postroom.")]


def error_row(kind: type[PostroomError]) -> str:
    status = next((str(int(STATUS[base])) for base in kind.__mro__ if base in STATUS), "")
    return f"| `{kind.code}` | `{kind.__name__}` | {status} | {(kind.__doc__ or '').splitlines()[0]} |"


async def test_every_sqlstate_is_in_the_reference(room: Room) -> None:
    """errors.md has a row per SQLSTATE of ours that a function of the room raises."""
    sources = await room.pool.fetch("SELECT prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace")
    raised = {found for row in sources for found in re.findall(r"'(PR\d{3})'", row["prosrc"])}
    assert re.findall(r"^\| `(PR\d{3})` \|", page("errors.md"), re.MULTILINE) == sorted(raised)


def test_every_error_is_in_the_reference() -> None:
    """errors.md has a row per error with its code, class, HTTP status and sentence."""
    expected = [error_row(kind) for kind in kinds()]
    written = [line for line in page("errors.md").splitlines() if re.match(r"\| `\w+` \| `\w+` \|", line)]
    assert written == expected, "the table should be:\n" + "\n".join(expected)


# --- metrics -------------------------------------------------------------------------


def declared(module: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The metrics that one source declares; labels stand in the call, or in a constant above it."""
    constants = {
        target.id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _SUFFIXES:
            arguments = (constants[part.id] if isinstance(part, ast.Name) else part for part in call.args)
            name, _about, *labels = map(ast.literal_eval, arguments)
            yield name + _SUFFIXES[call.func.id], tuple(labels[0]) if labels else ()


def metrics() -> dict[str, tuple[str, ...]]:
    """Every metric under the name Prometheus shows, with its labels, read from each capability's `metrics.py`."""
    sources = sorted(SOURCE.glob("*/metrics.py"))
    return {name: labels for path in sources for name, labels in declared(ast.parse(path.read_text("utf-8")))}


def test_every_metric_is_in_the_reference() -> None:
    """metrics.md has a row per metric with its labels."""
    rows = (re.match(r"\| `(postroom_\w+)` \| [a-z]+ \|([^|]*)\|", line) for line in page("metrics.md").splitlines())
    written = {row[1]: tuple(re.findall(r"`(\w+)`", row[2])) for row in rows if row}
    assert written == metrics()


# --- SQL -----------------------------------------------------------------------------


async def test_every_parameter_of_send_is_in_the_reference(room: Room) -> None:
    """sql.md has a row per parameter of send(), in its order."""
    names = await room.pool.fetchval("SELECT proargnames FROM pg_proc WHERE oid = to_regproc('send')")
    assert re.findall(r"^\| `(p_\w+)` \|", page("sql.md"), re.MULTILINE) == names


FUNCTIONS = """
    SELECT DISTINCT proname
    FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace AND prorettype <> 'trigger'::regtype
"""
TABLES = """
    SELECT relname
    FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition
"""


def public_functions(names: set[str]) -> set[str]:
    """Those that a how-to page tells people to call, and those that nobody calls in here: they must be for others."""
    told = {name for path in HOW_TO for name in _TOLD.findall(path.read_text("utf-8"))}
    sources = [
        path for path in SOURCE.rglob("*") if path.suffix in (".sql", ".py") and path.parent.name != "migrations"
    ]
    called = {
        name for path in sources for name in re.findall(r"\b(\w+)\s*\(", path.read_text("utf-8")) if path.stem != name
    }
    return names & told | names - called


async def test_every_public_function_is_in_the_reference(room: Room) -> None:
    """sql.md names every function that people call, and none that is not there."""
    names = {row["proname"] for row in await room.pool.fetch(FUNCTIONS)}
    rows = re.findall(r"^(?:\| `|## )(\w+)\(", page("sql.md"), re.MULTILINE)
    assert set(rows) <= names
    missing = public_functions(names) - set(rows)
    assert not missing, f"sql.md lacks {sorted(missing)}"


async def test_every_table_is_in_the_reference(room: Room) -> None:
    """sql.md names every table and view of a room."""
    names = {row["relname"] for row in await room.pool.fetch(TABLES)}
    assert not {name for name in names if f"`{name}`" not in page("sql.md")}


# --- settings ------------------------------------------------------------------------


def shown_duration(value: timedelta) -> str:
    seconds = value.total_seconds()
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size and seconds % size == 0), _UNITS[-1])
    return f"`{round(seconds / size)}{unit}`" if seconds else "`0s`"


def shown_default(value: Any) -> str:
    """A default as one would write it into the variable."""
    if value is None or value == ():
        return ""
    if isinstance(value, timedelta):
        return shown_duration(value)
    if isinstance(value, tuple):  # an address, or a list
        return f"`{':'.join(map(str, value)) if isinstance(value[-1], int) else ','.join(map(str, value))}`"
    return f"`{int(value) if isinstance(value, bool) else value}`"


def settings_table() -> list[str]:
    """The rows settings.md must have. `pytest tests/docs -k settings` prints them when the page is behind."""
    return [
        f"| `{entry.metadata['variable']}` | {shown_default(entry.default)} | {entry.metadata['about']} |".replace(
            "|  |", "| |"
        )
        for entry in fields(Settings)
    ]


def test_the_settings_table_is_that_of_the_code() -> None:
    """settings.md has a row per setting, in its order, with its default and meaning."""
    written = [line for line in page("settings.md").splitlines() if line.startswith("| `POSTROOM_")]
    assert written == settings_table(), "the table should be:\n" + "\n".join(settings_table())


def test_every_secret_is_named() -> None:
    """settings.md ends with the variables that can hold a secret, which are never logged."""
    last = page("settings.md").rsplit("The variables that can hold a secret", maxsplit=1)[-1]
    secret = [str(entry.metadata["variable"]) for entry in fields(Settings) if not entry.repr]
    assert re.findall(r"`(POSTROOM_\w+)`", last) == secret


# --- links ---------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The places of a page that a link can lead to, by GitHub's rule."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", path.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    """A relative link names a file or folder of the repository, and a heading that is there."""
    broken = []
    for found in _LINK.finditer(_FENCE.sub("", path.read_text("utf-8"))):
        target, _, anchor = unquote(found["target"]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        place = (path.parent / target).resolve() if target else path
        is_there = place.exists() and (not anchor or anchor in anchors(place))
        broken += [] if is_there else [found["target"]]
    assert not broken
