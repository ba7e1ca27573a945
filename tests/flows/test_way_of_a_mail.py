"""The way of one mail through the code, traced: which files it passes, and how often it turns back.

Three kinds of files count, each by what ran for the mail:

- a Python file with a function that ran. Files of which only properties and methods of a frozen record ran are not
  counted: they are types, which the mail does not pass;
- a `queries.sql` with a statement that ran;
- the file of a stored function or of a trigger's function, if PostgreSQL counted a call of it (`track_functions`).
  PostgreSQL does not see an SQL function that the planner has inlined into its caller.
"""

import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.conftest import TestServer
from tests.support.http import open_browser
from tests.support.smtp_server import smtp_server

import postroom
from postroom.app import make_writers, open_routes
from postroom.db.pool import Pool
from postroom.db.queries import Statement, load
from postroom.db.room import Room, open_room
from postroom.delivery.model import Lane
from postroom.delivery.worker import Worker
from postroom.mail.rendering import TemplateRendering
from postroom.mail.versions import TemplateVersions
from postroom.settings import Settings

SOURCE = Path(postroom.__file__).parent
LIBRARIES = frozenset({"db", "runtime", "post"})
"""Folders below every capability: calling them is no step of the way."""
MAIL = {"to": ["ann@example.org"], "subject": "Hello", "text": "Hello Ann"}
MOST_FILES = 47
"""Python and SQL files together. Each outage and each bounce is counted on the way: the counts of ways out, and of
acceptances, have a file each."""
MOST_BACK_STEPS = 3
CREATED = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION (\w+)", re.MULTILINE)


@dataclass(slots=True)
class Way:
    """The functions of Postroom in the order of their first call, each with the folder that called it first."""

    callers: dict[tuple[str, str], str | None] = field(default_factory=dict)
    statements: set[str] = field(default_factory=set)  # the texts of those that ran

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function: see `sys.setprofile`."""
        file = _file(frame)
        if event == "call" and isinstance(called := frame.f_locals.get("self"), Statement):
            self.statements.add(called.sql)
        if event == "call" and file is not None and not _is_part_of_another(frame):
            caller = frame.f_back
            while caller is not None and _file(caller) is None:
                caller = caller.f_back
            called_from = None if caller is None else (_file(caller) or "").partition("/")[0]
            self.callers.setdefault((file, frame.f_code.co_name), called_from)

    @property
    def files(self) -> set[str]:
        return {file for file, _function in self.callers}

    @property
    def back_steps(self) -> list[str]:
        """Calls from one capability into another that the way had entered before."""
        entered: set[str] = set()
        steps = []
        for (file, function), caller in self.callers.items():
            folder = file.partition("/")[0]
            if folder in LIBRARIES:
                continue
            if folder in entered and caller not in {folder, None, *LIBRARIES}:
                steps.append(f"{caller} → {file}:{function}")
            entered.add(folder)
        return steps


def _file(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else None


def _is_part_of_another(frame: FrameType) -> bool:
    """True for a property or a method of a frozen record, and for a comprehension, which is part of its function."""
    if frame.f_code.co_name in {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}:
        return True
    kind = type(frame.f_locals.get("self"))
    options = getattr(kind, "__struct_config__", None) or getattr(kind, "__dataclass_params__", None)
    return options is not None and options.frozen


@contextmanager
def traced() -> Iterator[Way]:
    way = Way()
    sys.setprofile(way.note)
    try:
        yield way
    finally:
        sys.setprofile(None)


def _statement_files() -> dict[str, str]:
    """The file of each statement of a capability, by its text."""
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("queries.sql")]
    packages = {file: ".".join(("postroom", *file.parent.parts)) for file in files}
    return {statement.sql: str(file) for file, package in packages.items() for statement in load(package)}


def _function_files() -> dict[str, str]:
    """The file that creates each stored function; the dump of the schema repeats them all."""
    files = [path for path in SOURCE.rglob("*.sql") if path.name != "schema.sql"]
    return {name: str(file.relative_to(SOURCE)) for file in files for name in CREATED.findall(file.read_text("utf-8"))}


@pytest.fixture
async def counting_room(server: TestServer, database_url: str) -> AsyncIterator[Room]:
    """A room whose sessions count calls of stored functions. Not behind PgBouncer: the count asks every session."""
    name = urlsplit(database_url).path[1:]
    superuser = await asyncpg.connect(server.superuser_url)
    await superuser.execute(f"ALTER DATABASE \"{name}\" SET track_functions = 'all'")
    await superuser.close()
    async with open_room(Settings(database_url=database_url, pool_size=4)) as room:
        yield room


async def _count_calls(pool: Pool) -> Counter[str]:
    """The calls of each stored function so far; a session reports its calls once a second, or on request."""
    async with AsyncExitStack() as stack:
        for _ in range(pool.get_max_size()):
            session = await stack.enter_async_context(pool.acquire())
            await session.execute("SELECT pg_stat_force_next_flush()")
        rows = await session.fetch("SELECT funcname, calls FROM pg_stat_user_functions")
    return Counter(dict(rows))


async def test_a_mail_passes_few_files_and_seldom_turns_back(counting_room: Room) -> None:
    """From POST to the ledger; the second mail is traced, so that start-up and the first connection are not counted."""
    room = counting_room
    browser = await open_browser(room, name="shop")
    async with smtp_server() as server:
        relay = f"smtp://127.0.0.1:{server.port}?tls=none"
        serving = replace(room, settings=replace(room.settings, transport="smtp", smtp_relay=relay))
        async with open_routes(serving) as routes:
            templates = TemplateRendering(room.pool, TemplateVersions(room.pool))
            worker = Worker(room.pool, writers=make_writers(serving, templates, accounts=None), routes=routes)
            for _ in range(2):
                calls_before = await _count_calls(room.pool)
                with traced() as accepting:
                    assert (await browser.post("/v1/deliveries", json=MAIL)).status == 202
                with traced() as attempting:
                    assert await worker.run_once(Lane.TRANSACTIONAL) == 1
                calls = await _count_calls(room.pool) - calls_before
    statements, functions = _statement_files(), _function_files()
    python = accepting.files | attempting.files
    sql = {statements[each] for each in accepting.statements | attempting.statements}
    sql |= {functions[name] for name in calls}
    assert "app.py" not in python
    assert {"delivery/queries.sql", "delivery/functions/send.sql"} <= sql, "SQL is not counted"
    assert len(python | sql) <= MOST_FILES, "\n".join(sorted(python | sql))
    assert len(attempting.back_steps) <= MOST_BACK_STEPS, attempting.back_steps
