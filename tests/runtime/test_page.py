"""Cursors: opaque, exact, and rejected if invalid."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import BadInput
from postroom.runtime.page import decode_cursor, encode_cursor


@given(st.datetimes(timezones=st.just(UTC)), st.integers(0, 2**53))
def test_cursor_round_trip_is_exact(moment: datetime, number: int) -> None:
    """A position is preserved to the microsecond."""
    assert decode_cursor(encode_cursor(moment, number), tuple[datetime, int]) == (moment, number)


@pytest.mark.parametrize("cursor", ["", "x", "!!!!", "bm90IGpzb24", "WyJ0ZXh0Il0", "é", "[]", encode_cursor(2**63)])
def test_invalid_cursor_is_bad_input(cursor: str) -> None:
    """The error names the field."""
    with pytest.raises(BadInput) as caught:
        decode_cursor(cursor, tuple[int])
    assert caught.value.errors[0].field == "cursor"
