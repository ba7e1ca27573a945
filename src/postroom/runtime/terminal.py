"""Shared by all commands: an event loop, an open room, and output for people and for programs.

A capability's `cli.py` parses, calls one service, and renders with these functions. Importing this module is cheap; the
first command that needs the database driver or the table printer imports it, so that `--help` stays quick.
"""

import asyncio
import getpass
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from postroom.runtime.setting import parse_duration
from postroom.settings import Settings, read_settings

if TYPE_CHECKING:
    from postroom.db.room import Room

Result = TypeVar("Result")
Item = TypeVar("Item")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Cursor = Annotated[str | None, typer.Option(help="Next cursor of the previous page.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of items.")]

CLI_POOL_SIZE = 2  # a command runs one statement at a time, and a listing a second
CLI_TIMEOUT = timedelta(minutes=10)  # a report over months, or an erasure, may take minutes; Ctrl-C ends it earlier
LARGEST_ID = 2**63 - 1  # bigint
_PIPE_WIDTH = 200  # width of a table without a terminal: wide enough for grep
_WHOLE = len("2026-01-01 00:00:00")  # numbers, states and times are never wrapped


def actor() -> str:
    """The actor of this process in the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container may run under a user id without a name
        return "cli:unknown"


def own_command() -> str:
    """The command that started this process, to be printed: `./dev` in a checkout, or as Python found the program."""
    wrapper = os.environ.get("STARTED_BY")
    if wrapper:
        return wrapper
    program = Path(sys.argv[0])
    if program.name != "postroom":
        return f"{Path(sys.executable).name} -m postroom.cli"
    on_path = shutil.which("postroom")
    return "postroom" if on_path and Path(on_path).absolute() == program.absolute() else shlex.quote(str(program))


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on uvloop, or on asyncio's loop without it."""
    try:
        from uvloop import new_event_loop
    except ImportError:  # not on Windows
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


def in_room(command: Callable[["Room"], Awaitable[Result]], *, pool_size: int = CLI_POOL_SIZE) -> Result:
    """Run one command in the room of the environment; the room must be migrated."""
    from dataclasses import replace

    from postroom.db.room import open_room
    from postroom.runtime.http_address import with_running_address
    from postroom.runtime.log import configure_logging
    from postroom.runtime.secret_key import with_secret_key

    settings = with_running_address(with_secret_key(read_settings(), making=False))
    configure_logging(settings.log_level, settings.log_format)

    async def opened() -> Result:
        async with open_room(replace(settings, pool_size=pool_size, database_timeout=CLI_TIMEOUT)) as room:
            return await command(room)

    return run(opened())


def stop_signal() -> asyncio.Event:
    """An event that SIGTERM and Ctrl-C set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def load_settings() -> Settings:
    """Load the settings and configure logging: the beginning of every long-running command."""
    from postroom.runtime.log import configure_logging

    settings = read_settings()
    configure_logging(settings.log_level, settings.log_format)
    return settings


def parse_moment(value: str, option: str | None = None) -> datetime:
    """Parse `2030-01-31T09:00:00Z`, or `+10m` from now. A time without a zone is rejected, because it is ambiguous.

    The error names `option`; Typer names the option of a parser itself.
    """
    try:
        if value.startswith("+"):
            return datetime.now(UTC) + parse_duration(value[1:])
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise typer.BadParameter("must have a time zone, such as 2030-01-31T09:00:00Z", param_hint=option)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = "must be a time such as 2030-01-31T09:00:00Z, or +10m"
        raise typer.BadParameter(message, param_hint=option) from error


def parse_pair(value: str) -> tuple[str, str]:
    """`name=value`."""
    name, separator, text = value.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{value!r} is not name=value")
    return name, text


def parse_variables(pairs: Sequence[str], as_json: str | None) -> dict[str, Any]:
    """The variables of a template from `--vars-json`, overridden by each `--var`."""
    import msgspec

    try:
        variables = msgspec.json.decode(as_json, type=dict[str, Any]) if as_json else {}
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"--vars-json is not a JSON object: {error}") from error
    return {**variables, **dict(parse_pair(pair) for pair in pairs)}


def existing(path: Path, *, is_folder_fine: bool = False) -> Path:
    """A file to read, or `-` for standard input; a missing file is a usage error."""
    if str(path) != "-":
        if not path.exists():
            raise typer.BadParameter(f"{path} does not exist")
        if path.is_dir() and not is_folder_fine:
            raise typer.BadParameter(f"{path} is a folder, not a file")
    return path


def say(text: str) -> None:
    """Print one line and flush, because the output may be a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """One JSON document: keys as in the API, times in UTC."""
    import msgspec

    encoded = msgspec.json.encode(value, enc_hook=str)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def say_or_json(text: str, record: Any, *, as_json: bool) -> None:
    """Print the result of a command: one line, or the record as JSON."""
    if as_json:
        print_json(record)
    else:
        say(text)


def print_page(items: Sequence[Any], cursor: str | None, *, columns: Sequence[str], as_json: bool) -> None:
    """Print one page of a list: a table of these attributes, or JSON of all."""
    if as_json:
        print_json({"items": items, "next_cursor": cursor})
        return
    print_table(columns, ([getattr(item, column) for column in columns] for item in items))
    if cursor:
        say(f"more: --cursor {cursor}")


@contextmanager
def progressing(items: Iterable[Item], about: str, *, size: int = 0) -> Iterator[Iterable[Item]]:
    """The items, with a progress bar if standard error is a terminal. `size`: their bytes; 0 counts the items."""
    if not sys.stderr.isatty():
        yield items
        return
    from rich.console import Console
    from rich.progress import Progress

    def counted(item: Item) -> Item:
        text = item.encode(errors="surrogateescape") if isinstance(item, str) else item
        progress.advance(task, len(text) if size and isinstance(text, bytes) else 1)
        return item

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(about, total=size or None)
        yield map(counted, items)


def print_table(columns: Sequence[str], rows: Iterable[Iterable[Any]], *, as_named: bool = False) -> None:
    """Print a table without borders, which can be pasted; `as_named` keeps the names of columns unchanged."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[shown(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        name = column if as_named else column.replace("_", " ")
        widest = max((len(row[number]) for row in cells), default=0)
        table.add_column(Text(name), overflow="fold", no_wrap=widest <= _WHOLE)
    for row in cells:
        # Text, not markup: a subject may contain [brackets].
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)


def print_record(record: Any, *, columns: Sequence[str] = (), as_json: bool = False) -> None:
    """Print one record: a line per attribute that has a value, all of them unless `columns` names some, or JSON."""
    if as_json:
        print_json(record)
        return
    columns = columns or tuple(get_type_hints(type(record)))
    width = max(len(column) for column in columns)
    for column in columns:
        value = getattr(record, column)
        if value not in (None, "", (), {}):
            say(f"{column.replace('_', ' '):<{width}}  {shown(value)}")


def shown(value: Any) -> str:
    """A value for people, on one line and without control characters."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        # A person's local time has no zone and is printed unchanged, independent of the host's zone.
        return (value if value.tzinfo is None else value.astimezone(UTC)).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value)
    if isinstance(value, Mapping):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return printable(str(value)).replace("\n", " ")


def printable(text: str) -> str:
    """Untrusted text without control characters, which could change an operator's screen."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for character in text.replace("\r\n", "\n")
    )
