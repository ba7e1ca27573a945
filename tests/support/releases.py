"""Other releases of Postroom as source trees, and their processes: the last one, and an imagined next one.

The last one is the source of its commit. The next one is a copy of this source with changes of the schema in both
phases: it registers workers under the column `hostname` instead of `host`, and `wake_workers` takes one more parameter.
The first phase adds both beside the old ones; the second removes those.
"""

import asyncio
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.command_line import COMMAND, environment
from tests.support.patience import PATIENCE_S

import postroom
from postroom.db.migrate import RELEASE, migration_files

LAST = "08def316675460bb1f3cf3259745c9b81750e2a3"
"""The commit of the last release, whose schema `tests/schema/released.json` records."""
REPOSITORY = Path(__file__).parents[2]
_BEFORE = """
ALTER TABLE workers ADD COLUMN hostname text; -- replaces host
ALTER TABLE workers ALTER COLUMN host DROP NOT NULL;
"""
_AFTER = """
ALTER TABLE workers DROP COLUMN host;
DROP FUNCTION wake_workers(text[]);
"""
_CHANGES = {
    "db/migrate.py": [(f"RELEASE = {RELEASE}\n", f"RELEASE = {RELEASE + 1}\n")],
    "delivery/queries.sql": [
        ("INSERT INTO workers (id, pid, host)", "INSERT INTO workers (id, pid, hostname)"),
        ("wake_workers(:lanes::text[])", "wake_workers(:lanes::text[], 'statement')"),
    ],
    "delivery/functions/wake_workers.sql": [("(p_lanes text[])", "(p_lanes text[], p_cause text)")],
    "delivery/functions/send.sql": [("(ARRAY[p_lane])", "(ARRAY[p_lane], 'send')")],
    "delivery/functions/accept_deliveries.sql": [("wake_workers(p_lane)", "wake_workers(p_lane, 'batch')")],
    "delivery/functions/enqueue_deliveries.sql": [("(ARRAY[p_lane::text])", "(ARRAY[p_lane::text], 'queue')")],
}


@dataclass(frozen=True)
class Release:
    """A source tree, and the settings of its processes."""

    path: Path
    settings: dict[str, str]

    @asynccontextmanager
    async def running(self, command: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process of this release; stopped at the end, whatever the test does."""
        with (self.path / f"{command}.log").open("ab") as log:
            process = await self._start(command, stdout=log)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_S):
                        await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def outcome(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end: exit code and output."""
        process = await self._start(*arguments, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    async def _start(self, *arguments: str, stdout: IO[bytes] | int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *COMMAND,
            *arguments,
            stdout=stdout,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(**self.settings, PYTHONPATH=str(self.path)),
        )


class ReleaseMissing(Exception):  # noqa: N818 - read as a sentence
    """The history of this checkout does not have the commit of the release."""


def export_last_release(directory: Path, settings: dict[str, str]) -> Release:
    """The source of the last release, from the history of this checkout."""
    directory.mkdir()
    archive = subprocess.run(["git", "-C", str(REPOSITORY), "archive", LAST, "src"], check=False, capture_output=True)
    if archive.returncode != 0:
        raise ReleaseMissing(archive.stderr.decode().strip())
    subprocess.run(["tar", "-x", "-C", str(directory)], check=True, input=archive.stdout)
    return Release(directory / "src", settings)


def build_next_release(directory: Path, settings: dict[str, str]) -> Release:
    """Copy this source and change it."""
    source = directory / "postroom"
    shutil.copytree(Path(postroom.__file__).parent, source)  # with compiled files: compiling takes seconds
    for name, changes in _CHANGES.items():
        text = (source / name).read_text("utf-8")
        for old, new in changes:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        (source / name).write_text(text, "utf-8")
    last = migration_files()[-1].version
    assert re.fullmatch(r"\d{4}_.*", migration_files()[-1].name)
    migrations = source / "db" / "migrations"
    (migrations / f"{last + 1:04}_delivery_hostname.sql").write_text(_BEFORE)
    (migrations / f"{last + 2:04}_delivery_hostname.after.sql").write_text(_AFTER)
    return Release(directory, settings)
