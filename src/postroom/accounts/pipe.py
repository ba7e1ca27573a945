"""Batches as lines for another program: one line per batch, each written whole before the batch counts as taken.

    csv     action,email,login,secret,code repeated for each token; action 1 = activation, 2 = recovery
    jsonl   one JSON array of objects with the same names

Whoever reads may get a line twice, after a crash between the line and its commit, and never misses one.
"""

import csv
import io
from collections.abc import Callable, Sequence
from typing import TextIO

import msgspec

from postroom.accounts.letter import Letterhead
from postroom.accounts.model import DueToken
from postroom.db.queries import Connection

FIELDS = ("action", "email", "login", "secret", "code")

Format = Callable[[Sequence[tuple[int, str, str, str, str]]], str]


def csv_line(rows: Sequence[tuple[int, str, str, str, str]]) -> str:
    """Quoted only where a value holds a comma or a quote; no value holds a line break."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([value for row in rows for value in row])
    return line.getvalue()


def json_line(rows: Sequence[tuple[int, str, str, str, str]]) -> str:
    return msgspec.json.encode([dict(zip(FIELDS, row, strict=True)) for row in rows]).decode() + "\n"


FORMATS: dict[str, Format] = {"csv": csv_line, "jsonl": json_line}


class Pipe:
    """Hands batches to whoever reads the stream."""

    def __init__(self, stream: TextIO, letterhead: Letterhead, *, form: Format, batch_limit: int = 10) -> None:
        self._stream, self._letterhead, self._form, self._limit = stream, letterhead, form, batch_limit

    async def __call__(self, _connection: Connection, tokens: Sequence[DueToken]) -> None:
        rows = [self._row(token) for token in tokens]
        for start in range(0, len(rows), self._limit):
            self._stream.write(self._form(rows[start : start + self._limit]))
        self._stream.flush()

    def _row(self, token: DueToken) -> tuple[int, str, str, str, str]:
        return token.action.number, token.email, token.login, self._letterhead.sign(token), token.code
