"""The way of one mail through the code, traced: which files it passes, and how often it turns back."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from tests.support.http import open_browser
from tests.support.smtp_server import smtp_server

import postroom
from postroom.app import make_writers, open_routes
from postroom.db.room import Room
from postroom.delivery.model import Lane
from postroom.delivery.worker import Worker
from postroom.mail.rendering import TemplateRendering
from postroom.mail.versions import TemplateVersions

SOURCE = Path(postroom.__file__).parent
LIBRARIES = frozenset({"db", "runtime", "post"})
"""Folders below every capability: calling them is no step of the way."""
MAIL = {"to": ["ann@example.org"], "subject": "Hello", "text": "Hello Ann"}
MOST_FILES = 45
"""Python files with a function that runs. Files of which only properties of a frozen record run are not counted: they
are types, which the mail does not pass."""
MOST_BACK_STEPS = 3


@dataclass(slots=True)
class Way:
    """The functions of Postroom in the order of their first call, each with the folder that called it first."""

    callers: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function: see `sys.setprofile`."""
        file = _file(frame)
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


async def test_a_mail_passes_few_files_and_seldom_turns_back(room: Room) -> None:
    """From POST to the ledger; the second mail is traced, so that start-up and the first connection are not counted."""
    browser = await open_browser(room, name="shop")
    async with smtp_server() as server:
        relay = f"smtp://127.0.0.1:{server.port}?tls=none"
        serving = replace(room, settings=replace(room.settings, transport="smtp", smtp_relay=relay))
        async with open_routes(serving) as routes:
            templates = TemplateRendering(room.pool, TemplateVersions(room.pool))
            worker = Worker(room.pool, writers=make_writers(serving, templates, accounts=None), routes=routes)
            for _ in range(2):
                with traced() as accepting:
                    assert (await browser.post("/v1/deliveries", json=MAIL)).status == 202
                with traced() as attempting:
                    assert await worker.run_once(Lane.TRANSACTIONAL) == 1
    passed = accepting.files | attempting.files
    assert "app.py" not in passed
    assert len(passed) <= MOST_FILES, sorted(passed)
    assert len(attempting.back_steps) <= MOST_BACK_STEPS, attempting.back_steps
