"""CSV for spreadsheets: no cell becomes a formula, every text is read back unchanged."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.runtime.spreadsheet import unescape_cell, write_rows


@pytest.mark.parametrize("text", ["=1+1@example.org", '=HYPERLINK("http://x")', "+1", "-1", "@a", "\tx", "'x"])
def test_a_formula_becomes_text(text: str) -> None:
    """The cell begins with an apostrophe, and reading removes it."""
    [[cell]] = csv.reader(io.StringIO(write_rows([[text]]), newline=""))
    assert cell == f"'{text}"
    assert unescape_cell(cell) == text


def test_numbers_and_empty_cells_stay() -> None:
    """Only text can be a formula: a negative number is a number."""
    assert write_rows([[-1, None, "a", "a=b"]]) == "-1,,a,a=b\n"


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0\r\n")))
def test_every_text_survives(text: str) -> None:
    """Text of a recipient or a server is the same after writing and reading."""
    [row] = csv.reader(io.StringIO(write_rows([[text, "end"]]), newline=""))
    assert unescape_cell(row[0]) == text
