"""Parse and write suppression lists as CSV.

A header line names the columns: `email`, and optionally `reason`, `scope`, `origin`, `campaign_id` and `detail`; other
columns are ignored. Without a header, the first column is the address. One line is one address: line breaks inside
quotes are not supported, and our own exports contain none. An invalid line is rejected with its number and the reason.
"""

import codecs
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from postroom.errors import BadInput
from postroom.feedback.model import NewSuppression, Scope, Suppression, SuppressionReason
from postroom.post.address import parse_bare
from postroom.post.text import storable
from postroom.runtime.spreadsheet import read_lines, unescape_cell, write_rows

Member = TypeVar("Member", SuppressionReason, Scope)
Item = TypeVar("Item")

BATCH = 5000  # rows per transaction: fewer round trips, while locks stay short
LONGEST_LINE = 10_000  # an address and its columns need a few hundred characters; bounds memory
MOST_REFUSED = 1000  # of a file; the count covers all lines
COLUMNS = ("email", "reason", "scope", "origin", "campaign_id", "until", "created_at", "bounce_count", "code", "detail")
_NAMES = {"email": "email", "address": "email", "e-mail": "email", "recipient": "email"}
_KNOWN = ("reason", "scope", "origin", "campaign_id", "detail")
_LONGEST_DETAIL = 500  # of a note; longer text is cut
_LONGEST_ORIGIN = 100  # of a name; longer text is cut


@dataclass(slots=True)
class Imported:
    """The result of an import: lines read, addresses written, and the first rejected lines."""

    lines: int = 0
    written: int = 0
    refused: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, number: int, problem: str) -> None:
        self.refused += 1
        if len(self.problems) < MOST_REFUSED:
            self.problems.append((number, problem))


class ListReader:
    """Reads a list line by line. `read` returns the suppressions of some lines; rejected lines go into `result`."""

    def __init__(self, *, reason: SuppressionReason = SuppressionReason.MANUAL, origin: str = "import") -> None:
        self.result = Imported()
        self._reason, self._origin = reason, origin
        self._columns: dict[str, int] | None = None
        self._number = 0

    def read(self, lines: Iterable[str]) -> list[NewSuppression]:
        some = list(lines)
        found = []
        for number, cells, problem in read_lines(some, first=self._number + 1, longest=LONGEST_LINE):
            try:
                suppression = self._row(cells, problem)
            except ValueError as error:
                self.result.lines += 1
                self.result.refuse(number, str(error) or "cannot be read")
                continue
            if suppression is not None:
                self.result.lines += 1
                found.append(suppression)
        self._number += len(some)
        return found

    def _row(self, cells: list[str], problem: str) -> NewSuppression | None:
        if problem:
            raise ValueError(problem)
        if self._columns is None:
            self._columns = _header(cells)
            if self._columns is not None:
                return None
            self._columns = {"email": 0}
        return self._suppression(
            {name: unescape_cell(cells[at].strip()) for name, at in self._columns.items() if at < len(cells)}
        )

    def _suppression(self, cells: dict[str, str]) -> NewSuppression:
        try:
            address = parse_bare(cells.get("email", ""))
        except ValueError as error:
            raise ValueError(f"email: {error}") from None
        scope = cells.get("scope")
        campaign = cells.get("campaign_id")
        if campaign and not (campaign.isascii() and campaign.isdigit() and len(campaign) < 19):  # noqa: PLR2004 - bigint
            raise ValueError("campaign_id: must be a number")
        return NewSuppression(
            email=address,
            reason=_member(SuppressionReason, "reason", cells.get("reason") or self._reason.value),
            scope=_member(Scope, "scope", scope) if scope else None,
            origin=storable(cells.get("origin") or self._origin, _LONGEST_ORIGIN),
            campaign_id=int(campaign) if campaign else None,
            detail=storable(cells["detail"], _LONGEST_DETAIL) if cells.get("detail") else None,
        )


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[str]]:
    """The lines of a byte stream, in groups per chunk; raises `BadInput` if it is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    rest = ""
    try:
        async for chunk in chunks:
            *lines, rest = (rest + decoder.decode(chunk)).split("\n")
            if len(rest) > LONGEST_LINE:
                raise BadInput.of("body", "has a line that is too long")
            yield lines
        rest += decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise BadInput.of("body", "is not UTF-8") from None
    if rest:
        yield [rest]


def batches(items: Iterable[Item], size: int = BATCH) -> Iterator[list[Item]]:
    """The items of a file, `size` at a time."""
    going = iter(items)
    while batch := list(islice(going, size)):
        yield batch


def write_lines(suppressions: Sequence[Suppression], *, header: bool) -> str:
    """Suppressions as CSV that `ListReader` reads again."""
    rows = (
        [
            each.email,
            each.reason.value,
            each.scope.value,
            each.origin,
            each.campaign_id,
            each.until.isoformat() if each.until else None,
            each.created_at.isoformat(),
            each.bounce_count,
            each.code,
            " ".join((each.detail or "").split()),
        ]
        for each in suppressions
    )
    return write_rows([COLUMNS, *rows] if header else rows)


def _header(cells: Sequence[str]) -> dict[str, int] | None:
    """The positions of the known columns; None if the line is an address and not a header."""
    names = [cell.strip().strip('"').lower().replace(" ", "_") for cell in cells]
    columns = {_NAMES.get(name, name): at for at, name in reversed(list(enumerate(names)))}
    if "email" in columns:
        return {name: at for name, at in columns.items() if name in ("email", *_KNOWN)}
    if any("@" in cell for cell in cells):
        return None
    raise BadInput.of("header", "lacks the column email")


def _member(kind: type[Member], column: str, text: str) -> Member:
    try:
        return kind(text.lower())
    except ValueError:
        raise ValueError(f"{column}: must be one of {', '.join(kind)}") from None
