"""Batches as lines for another program: one line per batch, written completely before the batch is committed.

    csv     action,email,login,secret,code repeated for each token; action 1 = activation, 2 = recovery
    jsonl   one JSON array of objects with the same names

A reader may get a line twice, after a crash between the line and its commit, but never misses one. The pipe waits for a
slow reader outside a transaction, because an open transaction delays account mail and events in the whole cluster.
"""

import asyncio
import csv
import io
import os
import select
import stat
from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from postroom.accounts.errors import ReaderPaused
from postroom.accounts.letter import AccountMailOptions
from postroom.accounts.model import DueToken, TokenId
from postroom.db.queries import Connection
from postroom.errors import OutputLost

FIELDS = ("action", "email", "login", "secret", "code")
PATIENCE = timedelta(seconds=2)
"""Timeout for writing inside a transaction; longer would delay other collectors."""

Format = Callable[[Sequence[tuple[int, str, str, str, str]]], str]


def csv_line(rows: Sequence[tuple[int, str, str, str, str]]) -> str:
    """Values with a comma or a quote are quoted; no value contains a line break."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([value for row in rows for value in row])
    return line.getvalue()


def json_line(rows: Sequence[tuple[int, str, str, str, str]]) -> str:
    return msgspec.json.encode([dict(zip(FIELDS, row, strict=True)) for row in rows]).decode() + "\n"


FORMATS: dict[str, Format] = {"csv": csv_line, "jsonl": json_line}


class Pipe:
    """Write batches to a file descriptor. Lines that timed out are written before the next batch."""

    def __init__(
        self,
        descriptor: int,
        letterhead: AccountMailOptions,
        *,
        form: Format,
        batch_limit: int = 10,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._descriptor, self._letterhead, self._form, self._limit = descriptor, letterhead, form, batch_limit
        self._patience_s = patience.total_seconds()
        self._can_wait = _can_wait(descriptor)
        self._unwritten = bytearray()
        self._postponed: set[TokenId] = set()  # printed or buffered, but not committed

    async def ready(self) -> None:
        """Wait without a timeout until all buffered lines are written and the reader accepts more."""
        await self._write_all()
        await self._until_writable()

    async def __call__(self, _connection: Connection, tokens: Sequence[DueToken]) -> None:
        """Raises `ReaderPaused` if the lines are not written in time, and `OutputLost` if they cannot be."""
        ids = {token.id for token in tokens}
        rows = [self._row(token) for token in tokens if token.id not in self._postponed]
        for start in range(0, len(rows), self._limit):
            self._unwritten += self._form(rows[start : start + self._limit]).encode()
        try:
            async with asyncio.timeout(self._patience_s):
                await self._write_all()
        except TimeoutError:
            self._postponed |= ids
            raise ReaderPaused from None
        self._postponed -= ids

    async def _write_all(self) -> None:
        """Write PIPE_BUF bytes at a time, which a writable pipe takes at once; a cancellation keeps the rest."""
        while self._unwritten:
            await self._until_writable()
            try:
                written = os.write(self._descriptor, self._unwritten[: select.PIPE_BUF])
            except BlockingIOError:  # another writer has filled it
                continue
            except OSError as error:
                raise OutputLost(error.strerror or str(error)) from error
            del self._unwritten[:written]

    async def _until_writable(self) -> None:
        if not self._can_wait:
            return
        loop, writable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(self._descriptor, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(self._descriptor)

    def _row(self, token: DueToken) -> tuple[int, str, str, str, str]:
        return token.action.number, token.email, token.login, self._letterhead.sign(token), token.code


def _can_wait(descriptor: int) -> bool:
    """True if writes can block. Files on disk are always writable, and epoll rejects them."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
