"""Watches the template files of a worker and publishes them after a change, without a restart.

A change is published when two looks in a row find the same files: a deployment that copies many files is not published
half done. Invalid files are logged once, and the current versions stay. A process publishes only after a change of its
own files, so processes with different files do not take turns.
"""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import structlog

from postroom.db.room import Room
from postroom.mail.errors import TemplateInvalid
from postroom.mail.publishing import publish_files
from postroom.mail.template_files import SHARED
from postroom.runtime.loop import Loop

_log = structlog.get_logger()

Signature = frozenset[tuple[str, int, int]]
"""Path, time of change and size of every file."""


class TemplateWatcher:
    """Looks at the files of POSTROOM_TEMPLATE_DIR at an interval."""

    def __init__(self, room: Room, directory: Path, *, interval: timedelta, actor: str) -> None:
        self._room, self._directory, self._interval, self._actor = room, directory, interval, actor
        self._published = self._seen = signature_of(directory)

    def loop(self) -> Loop:
        return Loop("templates", self.run_once, rest=self._interval)

    async def run_once(self) -> dict[str, int]:
        """Publish the files if they changed and are complete; returns the new versions."""
        before, self._seen = self._seen, await asyncio.to_thread(signature_of, self._directory)
        if self._seen in (self._published, frozenset()) or self._seen != before:
            return {}
        published: dict[str, int] = {}
        try:
            published = await publish_files(self._room, actor=self._actor)
        except TemplateInvalid as invalid:
            _log.error("templates_invalid", reason=invalid.message)
        self._published = self._seen  # after any other error, such as a lost database, the next look tries again
        return published


def signature_of(directory: Path) -> Signature:
    """Empty if the folder cannot be read, for example while a deployment replaces it."""
    try:
        found = [(path, path.stat()) for path in _files(directory) if path.is_file()]
    except OSError:
        return frozenset()
    return frozenset((str(path), status.st_mtime_ns, status.st_size) for path, status in found)


def _files(directory: Path) -> Iterator[Path]:
    """The parts and samples of templates and the shared files. Links to folders are followed, as for reading them."""
    yield from directory.glob("*/*/*")
    for shared in SHARED:
        yield from (directory / shared).rglob("*")
