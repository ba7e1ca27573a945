"""Write the reference pages from the code: `./dev docs`.

A page has hand-written text and generated parts. Tables are generated in place, row by row. A command's section is
generated up to the line `<!-- notes -->`; notes and examples follow it. `tests/docs/test_reference.py` fails when a
page differs from what this module writes, and writes the page instead if `POSTROOM_WRITE_DOCS` is set.
"""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import typer

from postroom.cli import COMMANDS, GROUPS, build
from postroom.errors import PostroomError, list_errors
from postroom.http.model import SCOPES, Role
from postroom.http.problems import STATUS
from postroom.runtime.setting import variable_of, write_duration
from postroom.settings import Settings

SOURCE = Path(__file__).parents[2] / "src" / "postroom"
NOTES = "<!-- notes -->"
SHARED = frozenset({"--json", "--limit", "--cursor", "--help"})  # explained once, at the top of the page

_ENDPOINT = re.compile(r"\| `([A-Z]+ /\S*)` \|.*")
_SUFFIXES = {"counter": "_total", "gauge": "", "histogram": ""}


def with_table(page: str, header: str, rows: Sequence[str]) -> str:
    """The page with other rows in the table that has this header."""
    before, found, after = page.partition(f"{header}\n")
    assert found, f"the page has no table {header}"
    rule, *lines = after.split("\n")
    kept = next(index for index, line in enumerate([*lines, ""]) if not line.startswith("|"))
    return before + "\n".join([header, rule, *rows, *lines[kept:]])


# --- HTTP ----------------------------------------------------------------------------


def http_page(page: str, document: Mapping[str, Any]) -> str:
    """A row per endpoint, where it stands; a new endpoint follows the last one of its tag."""
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    lines = [line for line in page.split("\n") if not (found := _ENDPOINT.match(line)) or found[1] in operations]
    for name, operation in operations.items():
        if not any((found := _ENDPOINT.match(line)) and found[1] == name for line in lines):
            lines.insert(_place(lines, operations, operation["tags"]), f"| `{name}` |")
    return "\n".join(
        _endpoint_row(found[1], operations[found[1]]) if (found := _ENDPOINT.match(line)) else line for line in lines
    )


def dashboard_page(page: str, document: Mapping[str, Any]) -> str:
    """A row per endpoint by path; the second column is kept, and `?` for a new endpoint."""
    known = dict(re.findall(r"^\| `([A-Z]+ /\S*)` \| (.*) \|$", page, re.MULTILINE))
    names = sorted((path, method.upper()) for path, methods in document["paths"].items() for method in methods)
    rows = [f"| `{method} {path}` | {known.get(f'{method} {path}', '?')} |" for path, method in names]
    return with_table(page, "| endpoint | in the dashboard |", rows)


def _place(lines: Sequence[str], operations: Mapping[str, Any], tags: Sequence[str]) -> int:
    found = [index for index, line in enumerate(lines) if (row := _ENDPOINT.match(line)) and row[1] in operations]
    same = [index for index in found if operations[_ENDPOINT.sub(r"\1", lines[index])]["tags"] == tags]
    return (same or found)[-1] + 1


def _endpoint_row(name: str, operation: Mapping[str, Any]) -> str:
    scope = re.search(r"`\S+`", operation.get("description", ""))
    return f"| `{name}` | {scope[0] if scope else 'none'} | {operation['summary']} |"


# --- the command line ----------------------------------------------------------------


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, those in groups too, and those in groups of groups."""
    for entry in (*COMMANDS, *GROUPS):
        found: Any = typer.main.get_command(build([entry.name]))
        yield from _below(f"postroom {entry.name}", found.commands[entry.name])


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part, inner in command.commands.items():
        yield from _below(f"{name} {part}", inner)


def cli_page(page: str) -> str:
    """A section per command, where it stands; a new command follows the last one of its group."""
    head, *sections = re.split(r"^(?=##)", page, flags=re.MULTILINE)
    known = dict(commands())
    kept = [each for each in sections if (_command_of(each) or "") in ("", *known)]
    for name in known:
        if name not in map(_command_of, kept):
            group = name.rpartition(" ")[0]
            same = [index for index, each in enumerate(kept) if (_command_of(each) or "").rpartition(" ")[0] == group]
            kept.insert(same[-1] + 1 if same else len(kept), f"### `{name}`\n")
    return head + "".join(_section(each, known) for each in kept).rstrip("\n") + "\n"


def _section(written: str, known: Mapping[str, Any]) -> str:
    name = _command_of(written)
    return written if name is None else _command_section(name, known[name], written)


def _command_of(section: str) -> str | None:
    found = re.match(r"### `(postroom [^`]+)`", section)
    return found[1] if found else None


def _command_section(name: str, command: Any, written: str) -> str:
    _generated, marker, notes = written.partition(NOTES)
    parts = [f"### `{name}`", *_about(name, command), *_options(command)]
    if marker:
        parts += [NOTES, notes.strip("\n")]
    return "\n\n".join(parts) + "\n\n"


def _about(name: str, command: Any) -> list[str]:
    """The help, and how the arguments are written."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", (command.help or "").strip())]
    arguments = [each for each in command.params if each.param_type_name == "argument" and not each.hidden]
    if arguments:
        paragraphs.append(f"Usage: `{name} {' '.join(map(_argument, arguments))}`.")
    return [textwrap.fill(part, 120, break_long_words=False, break_on_hyphens=False) for part in paragraphs]


def _argument(parameter: Any) -> str:
    text = (parameter.metavar or parameter.name.upper()) + ("…" if parameter.nargs == -1 else "")
    return text if parameter.required else f"[{text}]"


def options(command: Any) -> list[Any]:
    return [
        parameter
        for parameter in command.params
        if parameter.opts[0].startswith("--") and parameter.opts[0] not in SHARED and not parameter.hidden
    ]


def _options(command: Any) -> list[str]:
    rows = [f"| `{option.opts[0]}` | {option.help or ''} |" for option in options(command)]
    return ["\n".join(["| option | does |", "|---|---|", *rows])] if rows else []


# --- errors --------------------------------------------------------------------------


def errors_page(page: str) -> str:
    kinds = [kind for kind in list_errors() if kind is not PostroomError and kind.__module__.startswith("postroom.")]
    return with_table(page, "| code | class | HTTP | says |", [_error_row(kind) for kind in kinds])


def _error_row(kind: type[PostroomError]) -> str:
    status = next((str(int(STATUS[base])) for base in kind.__mro__ if base in STATUS), "")
    return f"| `{kind.code}` | `{kind.__name__}` | {status} | {(kind.__doc__ or '').splitlines()[0]} |"


# --- roles ---------------------------------------------------------------------------


def roles_page(page: str) -> str:
    header = f"| scope | {' | '.join(Role)} |"
    return with_table(page, header, [_scope_row(scope) for scope in SCOPES])


def _scope_row(scope: str) -> str:
    marks = ("yes" if role.allows(scope) else "" for role in Role)
    return f"| `{scope}` | {' | '.join(marks)} |"


# --- metrics -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as a capability declares it."""

    capability: str
    name: str
    kind: str
    about: str
    labels: tuple[str, ...]


def metrics_page(page: str) -> str:
    return with_table(page, "| metric | kind | labels | says |", [_metric_row(metric) for metric in metrics()])


def _metric_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.about} |".replace("|  |", "| |")


def metrics() -> Iterator[Metric]:
    """Every metric of the product, by capability."""
    for path in sorted(SOURCE.glob("*/metrics.py")):
        yield from _declared(path.parent.name, ast.parse(path.read_text("utf-8")))


def _declared(capability: str, module: ast.Module) -> Iterator[Metric]:
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
            name, about, *labels = map(ast.literal_eval, arguments)
            suffix, kind = _SUFFIXES[call.func.id], call.func.id
            yield Metric(capability, f"{name}{suffix}", kind, about, tuple(labels[0]) if labels else ())


# --- SQL -----------------------------------------------------------------------------


def sql_page(page: str, parameters: Sequence[tuple[str, str, str | None]]) -> str:
    """The parameters of `send()` with their types and defaults; the last column is written on the page."""
    written = dict(re.findall(r"^\| `(p_\w+)` \|.*\|([^|]*)\|$", page, re.MULTILINE))
    rows = [
        f"| `{name}` | `{kind}` | {_sql_default(default)} |{written.get(name, ' ')}|".replace("|  |", "| |")
        for name, kind, default in parameters
    ]
    return with_table(page, "| parameter | type | default | is |", rows)


def _sql_default(default: str | None) -> str:
    if default is None or default.upper().startswith("NULL"):
        return ""
    return f"`{default.split('::')[0]}`"


# --- settings ------------------------------------------------------------------------


def settings_page(page: str) -> str:
    rows = [
        f"| `{variable_of(entry)}` | {_default(entry.default)} | {entry.metadata['about']} |"
        for entry in fields(Settings)
    ]
    secret = ", ".join(f"`{variable_of(entry)}`" for entry in fields(Settings) if not entry.repr)
    sentence = textwrap.fill(f"The variables that can hold a secret ({secret}) are never logged.", 120)
    table = with_table(page, "| variable | default | means |", [row.replace("|  |", "| |") for row in rows])
    return re.sub(r"The variables that can hold a secret.*?are never\s+logged\.", sentence, table, flags=re.DOTALL)


def _default(value: Any) -> str:
    """A default as one would write it into the variable."""
    if value is None or value == ():
        return ""
    if isinstance(value, timedelta):
        return f"`{write_duration(value)}`"
    if isinstance(value, tuple):  # an address, or a list
        return f"`{':'.join(map(str, value)) if isinstance(value[-1], int) else ','.join(map(str, value))}`"
    return f"`{int(value) if isinstance(value, bool) else value}`"
