"""CSV that a spreadsheet opens safely. Pure.

Spreadsheets run a cell that begins with one of a few characters as a formula, and foreign servers and recipients write
some of our cells. Such a cell gets an apostrophe in front, which spreadsheets read as "this is text"; `unescape_cell`
removes it again, so that what Postroom wrote is read back unchanged.
"""

import csv
import io
from collections.abc import Iterable

_FORMULA = ("=", "+", "-", "@", "\t", "'")
"""The apostrophe is among them so that a text that begins with one survives the round trip."""


def write_rows(rows: Iterable[Iterable[object]]) -> str:
    """The rows as CSV lines; no cell may hold a line break."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_escape_cell(value) for value in row] for row in rows)
    return out.getvalue()


def unescape_cell(cell: str) -> str:
    """The text of a cell that `write_rows` wrote; a cell of any other origin stays as it is."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def _escape_cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
