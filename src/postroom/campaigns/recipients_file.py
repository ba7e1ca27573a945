"""Parse uploaded recipients from CSV or JSON lines, in chunks. Pure.

A reader accepts chunks that may end anywhere, inside a line, a quoted field or a character, and buffers only the
incomplete rest. CSV has a header line: `email` is required, `name` and `time_zone` are optional, and every other column
is a merge field under its name in lower case, with `_` for characters that a name cannot contain. The separator is a
comma, a semicolon or a tab, detected from the header. Lines may end in LF, CRLF or CR; quoted fields may contain line
breaks; a byte order mark and empty lines are skipped. A JSON line is an object with the same names.

An invalid line is rejected with its number and the reason; the other lines are read. Input that makes the rest
unreadable raises `BadInput` with the line: a header without `email`, bytes that are not UTF-8, a line or a quoted field
without an end.
"""

import codecs
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from postroom.campaigns.model import LineFormat, RejectedLine
from postroom.campaigns.zones import OWN_ZONE
from postroom.delivery.check import MAX_DEPTH, has_unstorable
from postroom.errors import BadInput
from postroom.post.address import parse_address
from postroom.runtime.spreadsheet import LONGEST_LINE, CsvReader, Row
from postroom.runtime.zones import is_zone

Person = tuple[str, str | None, str, str]
"""Address, name, time zone, and the merge fields as JSON: columns for a bulk insert."""

KNOWN = ("email", "name", "time_zone")
OURS = frozenset({"unsubscribe_url", "preferences_url"})
"""Variables that every letter has; merge fields cannot use these names."""

LONGEST_DATA = 32 * 1024  # bounds a row of a recipient; ten million rows must stay storable
LONGEST_NAME = 200  # bounds the display name in the To header
MOST_COLUMNS = 200  # a header with more is usually another kind of file
LONGEST_SHOWN = 100  # characters of a rejected value in a report

_NOT_IN_NAMES = re.compile(r"\W")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Lines(ABC):
    """Reader of one upload. Results accumulate in `people` and `refused` until `take` removes them."""

    def __init__(self) -> None:
        self.people: list[Person] = []
        self.refused: list[RejectedLine] = []
        self.line = 0
        """The number of lines read."""
        self.fields: dict[str, None] = {}
        """The merge fields found, in the order of their appearance."""

    @abstractmethod
    def feed(self, chunk: bytes) -> None:
        """Parse a chunk."""

    @abstractmethod
    def close(self) -> None:
        """Parse the buffered rest at the end of the input."""

    def take(self) -> tuple[list[Person], list[RejectedLine]]:
        """Return and clear the results since the last call."""
        taken = self.people, self.refused
        self.people, self.refused = [], []
        return taken

    def _refuse(self, line: int, field: str, message: str, value: str = "") -> None:
        self.refused.append(RejectedLine(line, field, message, " ".join(value[:LONGEST_SHOWN].split())))

    def _add(self, line: int, email: str, name: str | None, time_zone: str | None, data: bytes) -> None:
        """Add a recipient with a valid address and fields within the limits; reject the line otherwise."""
        try:
            address = parse_address(email)
        except ValueError as error:
            self._refuse(line, "email", str(error), email)
            return
        if len(data) > LONGEST_DATA:
            self._refuse(line, "line", f"holds more than {LONGEST_DATA} bytes of merge fields")
            return
        shown = " ".join(name.split()) if name else address.name
        if shown is not None and len(shown) > LONGEST_NAME:
            self._refuse(line, "name", f"is longer than {LONGEST_NAME} characters", shown)
            return
        zone = (time_zone or "").strip()
        if zone and not is_zone(zone):
            self._refuse(line, "time_zone", "is not a time zone such as Europe/Berlin", zone)
            return
        self.people.append((address.email, shown or None, zone or OWN_ZONE, data.decode()))


def open_lines(line_format: LineFormat) -> Lines:
    return CsvLines() if line_format is LineFormat.CSV else JsonLines()


class CsvLines(Lines):
    """Reader of comma-separated values, as spreadsheets write them."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = CsvReader(_separator_of)
        self._columns: _Columns | None = None

    def feed(self, chunk: bytes) -> None:
        self._take(self._reader.feed(chunk))

    def close(self) -> None:
        self._take(self._reader.close())
        if self._columns is None:
            raise BadInput.of("line 1", "the header line is missing")

    def _take(self, rows: Iterator[Row]) -> None:
        for self.line, cells, problem in rows:
            if problem:
                self._refuse(self.line, "line", problem)
            else:
                self._row(cells, has_nul=self._reader.has_nul)

    def _row(self, row: list[str], *, has_nul: bool) -> None:
        columns = self._columns
        if columns is None:
            if any(cell.strip() for cell in row):
                self._columns = _Columns(row, self.line)
                self.fields = dict.fromkeys(self._columns.fields)
            return
        if len(row) != columns.width:
            if any(cell.strip() for cell in row):
                self._refuse(self.line, "line", f"has {len(row)} fields; the header has {columns.width}")
            return
        if has_nul and any("\0" in cell for cell in row):
            self._refuse(self.line, "line", "contains a NUL")
            return
        email = row[columns.email].strip()
        if not email and not any(cell.strip() for cell in row):
            return  # spreadsheets write an empty line as separators only
        name = row[columns.name] if columns.name is not None else None
        zone = row[columns.time_zone] if columns.time_zone is not None else None
        self._add(self.line, email, name, zone, _encode(dict(zip(columns.fields, columns.values(row), strict=True))))


class _Columns:
    """The header: positions of the known columns, and names of the others."""

    def __init__(self, header: Sequence[str], line: int) -> None:
        if len(header) > MOST_COLUMNS:
            raise BadInput.of(f"line {line}", f"the header has more than {MOST_COLUMNS} columns")
        names = [_field_name(cell) for cell in header]
        self._check(names, line)
        self.width = len(names)
        self.email = names.index("email")
        self.name = names.index("name") if "name" in names else None
        self.time_zone = names.index("time_zone") if "time_zone" in names else None
        places = [place for place, name in enumerate(names) if name not in KNOWN]
        self.fields = tuple(names[place] for place in places)
        self._places = places
        self._getter = itemgetter(*places) if len(places) > 1 else None

    def values(self, row: list[str]) -> Sequence[str]:
        """The merge fields of a row, in the order of `fields`."""
        if self._getter is not None:
            values: Sequence[str] = self._getter(row)
            return values
        return [row[place] for place in self._places]

    @staticmethod
    def _check(names: list[str], line: int) -> None:
        twice = sorted(name for name, number in Counter(names).items() if number > 1)
        ours = sorted(OURS.intersection(names))
        nameless = [str(place) for place, name in enumerate(names, start=1) if not name.isidentifier()]
        wrong = (
            ("email" not in names and "the header has no column email")
            or (twice and f"the header has {', '.join(twice)} twice")
            or (ours and f"{', '.join(ours)} is set by Postroom and cannot be a column")
            or (nameless and f"column {', '.join(nameless)} has a name that cannot be a merge field")
        )
        if wrong:
            raise BadInput.of(f"line {line}", str(wrong))


def _field_name(cell: str) -> str:
    """The merge field of a column: `First Name` becomes `first_name`."""
    return _NOT_IN_NAMES.sub("_", cell.strip()).lower()


def _separator_of(block: str) -> str:
    """The separator with which the first non-empty line has a column `email`; a comma if none matches."""
    first = next((line for line in block.split("\n") if line.strip()), "")
    for separator in ",;\t":
        if "email" in (_field_name(cell.strip('"')) for cell in first.split(separator)):
            return separator
    return ","


class JsonLines(Lines):
    """Reader of JSON lines, one object per line."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = b""

    def feed(self, chunk: bytes) -> None:
        *whole, self._kept = (self._kept + chunk).split(b"\n")
        for line in whole:
            self._read(line)
        if len(self._kept) > LONGEST_LINE:
            raise BadInput.of(f"line {self.line + 1}", f"does not end within {LONGEST_LINE} bytes")

    def close(self) -> None:
        kept, self._kept = self._kept, b""
        if kept:
            self._read(kept)

    def _read(self, line: bytes) -> None:
        self.line += 1
        if self.line == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            return
        try:
            found = _decode(line)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            self._refuse(self.line, "line", f"is not a JSON object: {str(error) or type(error).__name__}"[:200])
            return
        known = [found.pop(name, None) for name in KNOWN]
        email, name, zone = known
        wrong = next((field for field, value in zip(KNOWN, known, strict=True) if not _is_text(value)), None)
        if wrong is not None or email is None:
            self._refuse(self.line, wrong or "email", "is missing" if email is None else "must be a string")
        elif b"\\u0000" in line:
            self._refuse(self.line, "line", "contains a NUL")
        elif not OURS.isdisjoint(found):
            self._refuse(self.line, "line", "has a field that is set by Postroom")
        elif any(isinstance(value, dict | list) for value in found.values()) and has_unstorable(found):
            # Checked here and not left to RecursionError: Python 3.13 decodes 5,000 levels, and templates see 32.
            self._refuse(
                self.line, "line", f"is nested more than {MAX_DEPTH} levels deep, or has a number beyond 64 bits"
            )
        else:
            self._add(self.line, email.strip(), name, zone, _encode(found))
            self.fields.update(dict.fromkeys(found if len(self.fields) < MOST_COLUMNS else ()))


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)
