"""The running processes of a room, with their releases.

A process registers before it works and reports once a minute. Registering waits for the second phase of a migration,
and then the process checks the room, so that no process of an older release can start unseen during that phase. Rooms
with the same applied files are checked once.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import asyncpg

from postroom.db.faults import is_passing
from postroom.db.migrate import RELEASE, check_migrated
from postroom.db.pool import Pool
from postroom.db.queries import load
from postroom.runtime.loop import Loop
from postroom.runtime.peers import UNLISTED_PROXIES

REPORT = timedelta(minutes=1)  # a third of PROCESS_SILENCE
RETRY = timedelta(seconds=1)  # a database that went away during the start
FORGET_S = 1.0  # a process that ends must not wait for a database that does not answer

_QUERIES = load("postroom.db")


_checked = set[str]()
"""Digests of applied files with which this release can run; a process with many rooms finds few."""


@dataclass(frozen=True, slots=True)
class RegisteredProcess:
    """A row of `processes`, and the digest of the files that the room had then."""

    process_id: int
    applied: str | None


@asynccontextmanager
async def process_registered(
    pool: Pool, room: str, command: str, *, registered: RegisteredProcess | None = None
) -> AsyncIterator[None]:
    """Count this process as one that runs on the room. Raises `DatabaseNewer` if it cannot run there.

    `registered` is for a process that has registered by another statement.
    """
    registration = _Registration(pool, room, command)
    try:
        try:
            await (registration.register() if registered is None else registration.accept(registered))
        except Exception as error:
            if not is_passing(error):
                raise
        renewing = Loop("process", registration.renew, rest=registration.rest)
        renewing.postpone(registration.rest())
        async with renewing.beside():
            yield
    finally:
        await registration.forget()


class _Registration:
    """One row of `processes`."""

    def __init__(self, pool: Pool, room: str, command: str) -> None:
        self._pool, self._room, self._command = pool, room, command
        self._id: int | None = None

    def rest(self) -> timedelta:
        return REPORT if self._id else RETRY

    async def register(self) -> None:
        async with self._pool.acquire() as connection:
            try:
                row = await _QUERIES["register_process"].one(
                    connection, pid=os.getpid(), release=RELEASE, host=socket.gethostname(), command=self._command
                )
            except asyncpg.UndefinedFunctionError:
                await check_migrated(connection, self._room)
                raise
        await self.accept(RegisteredProcess(row["process_id"], row["applied"]))

    async def accept(self, registered: RegisteredProcess) -> None:
        """Check the room after the registration, unless its files are known to belong to this release."""
        self._id = registered.process_id
        if registered.applied is None or registered.applied not in _checked:
            async with self._pool.acquire() as connection:
                await check_migrated(connection, self._room)
            _checked.update(filter(None, [registered.applied]))

    async def renew(self) -> None:
        """Report; register if that failed before, or the row was removed, as after a day without the database."""
        if self._id is None or await self._report() == 0:
            await self.register()

    async def _report(self) -> int:
        proxy = UNLISTED_PROXIES.newest
        return await _QUERIES["renew_process"].exec(self._pool, process_id=self._id, unlisted_proxy=proxy)

    async def forget(self) -> None:
        with suppress(Exception):  # the row expires by itself
            async with asyncio.timeout(FORGET_S):
                await _QUERIES["forget_process"].exec(self._pool, process_id=self._id)
