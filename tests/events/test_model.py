"""Tags, queries and cursors, without a database."""

import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import BadInput
from postroom.events import (
    Cursor,
    Event,
    Place,
    Query,
    QueryItem,
    event,
    period_tag,
    period_tags,
    split_tag,
    tag,
    tags_of,
)
from postroom.events.columns import append_columns, array_literal
from postroom.events.model import NOTHING_SEEN, Append, SequencedEvent, check_events
from postroom.events.typed import as_event, as_events, from_event

NUMBERS = st.integers(min_value=1, max_value=2**62)
PLACES = st.builds(Place, NUMBERS, NUMBERS)
SNAPSHOTS = st.tuples(NUMBERS, NUMBERS).map(lambda pair: f"{min(pair)}:{max(pair)}:")


@st.composite
def snapshots(draw: st.DrawFn) -> str:
    """Use few transactions, so that two snapshots overlap."""
    lowest, end = sorted(draw(st.tuples(st.integers(1, 12), st.integers(1, 12))))
    opened = draw(st.sets(st.integers(lowest, end - 1))) if end > lowest else set()
    return f"{lowest}:{end}:{','.join(map(str, sorted(opened)))}"


ANY_SNAPSHOTS = snapshots()


def is_shown(number: int, snapshot: str) -> bool:
    """The visibility rule of PostgreSQL."""
    _lowest, end, opened = snapshot.split(":")
    return number < int(end) and str(number) not in opened.split(",")


@event("WalletOpened", tags={"wallet": "wallet_id", "owner": "owners"})
class WalletOpened(msgspec.Struct, frozen=True):
    wallet_id: int
    owners: list[str]


class WalletRated(msgspec.Struct, frozen=True):
    rate: float


@given(SNAPSHOTS, st.none() | st.tuples(SNAPSHOTS, PLACES), st.none() | PLACES)
def test_cursor_round_trips_through_text(base: str, page: tuple[str, Place] | None, own: Place | None) -> None:
    """A cursor is equal after a round trip through text."""
    snapshot, place = page or (None, None)
    cursor = Cursor(base, snapshot, place, own)
    assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["", "7", "1:2", "1:2:///x", "1:2:/1:2://", "-1:2:///", "1:2:///\n", "\u0661:2:///", f"{'1' * 5000}:2:///"]
)
def test_invalid_cursor_is_rejected(text: str) -> None:
    """A forged cursor is bad input, not a database error."""
    with pytest.raises(BadInput, match="not a cursor"):
        Cursor.parse(text)


def test_limited_read_keeps_its_snapshot_and_place() -> None:
    """The next page stays within the same snapshot; the last page makes it the new base."""
    cut = NOTHING_SEEN.advanced(until="5:9:7", own=None, seen=[Place(3, 1), Place(4, 2)], is_cut=True)
    assert cut == Cursor("1:1:", "5:9:7", Place(4, 2))
    assert cut.advanced(until="5:9:7", own=None, seen=[Place(8, 3)], is_cut=False) == Cursor("5:9:7")


def test_own_events_are_remembered_by_position() -> None:
    """An open transaction may append more: only the events it had when it read count as seen."""
    cursor = NOTHING_SEEN.advanced(until="7:9:7", own=7, seen=[Place(3, 1), Place(7, 4)], is_cut=False)
    assert cursor == Cursor("7:9:7", own=Place(7, 4))
    assert cursor.advanced(until="7:9:7", own=7, seen=[], is_cut=False) == cursor
    assert cursor.advanced(until="9:10:9", own=None, seen=[Place(7, 5)], is_cut=False) == Cursor("9:10:9")


@given(ANY_SNAPSHOTS, ANY_SNAPSHOTS, st.none() | st.builds(Place, st.integers(1, 12), NUMBERS))
def test_cursor_has_seen_exactly_what_was_read(base: str, until: str, own: Place | None) -> None:
    """After a read, the cursor has seen exactly the events seen before or within the read."""
    cursor = Cursor.parse(str(Cursor(base, own=own).advanced(until=until, own=None, seen=[], is_cut=False)))
    shown = {number for number in range(1, 14) if is_shown(number, base) or is_shown(number, until)}
    assert {number for number in range(1, 14) if is_shown(number, cursor.base)} == shown
    assert cursor.own == (None if own is None or own.transaction_id in shown else own)


def test_a_tag_has_a_key_and_any_value() -> None:
    """The first equals sign ends the key."""
    assert tag("name", "Smith, John") == "name=Smith, John"
    assert split_tag(tag("sum", "a=b")) == ("sum", "a=b")
    assert tags_of({"wallet": [1, 2], "empty": "", "none": None}) == ("wallet=1", "wallet=2", "empty=")
    for key in ("", "a=b"):
        with pytest.raises(BadInput, match="key"):
            tag(key, 1)


def test_every_wrong_event_is_named() -> None:
    """All problems are reported at once, each with its path."""
    wrong = [
        Event(""),
        Event("x" * 65),
        Event("ok", {}, ("plain", "=value", "a=\0", "a=" + "é" * 600)),
        Event("\ud800"),
    ]
    with pytest.raises(BadInput) as caught:
        check_events(wrong)
    assert [error.field for error in caught.value.errors] == [
        "events[0].type", "events[1].type", "events[2].tags[0]", "events[2].tags[1]", "events[2].tags[2]",
        "events[2].tags[3]", "events[3].type",
    ]  # fmt: skip
    with pytest.raises(BadInput, match="at least one"):
        check_events([])


def nested(levels: int) -> list[object]:
    return [] if levels == 1 else [nested(levels - 1)]


REFUSED_DATA = {
    "no JSON": {"a": object()},
    "nul": {"a": "nul\0"},
    "half a surrogate": {"a": "\ud800"},
    "nul in a key": {"nul\0": 1},
    "NaN": {"a": [1, float("nan")]},
    "infinity": WalletRated(rate=-float("inf")),
    "a level too deep": {"a": nested(100)},
    "far too deep": [*nested(800), None],
    "too large": 10**309,
    "too small": [-(2 * 10**308)],
    "more digits than Python prints": 10**5000,
    "raw, too large": {"a": msgspec.Raw(b"1e99999")},
    "raw, no JSON": [msgspec.Raw(b"{bad")],
    "raw, more than one value": msgspec.Raw(b"1], [2"),
}
WELCOME_DATA = {
    "deep": {"a": nested(99)},
    "wide": [{"a": [None]}] * 200,
    "brackets in text": "[" * 200 + '\\"' + "{" * 200,
    "digits in text": {"a": "9" * 400},
    "the largest": [sys.float_info.max, -int(sys.float_info.max), 5e-324],
    "null": [None, "null", "NaN"],
}


@pytest.mark.parametrize("data", REFUSED_DATA.values(), ids=REFUSED_DATA)
def test_data_that_cannot_be_stored_or_read_back_is_refused(data: object) -> None:
    """Data that JSON, PostgreSQL or readers cannot hold is rejected with the name of the field."""
    with pytest.raises(BadInput) as caught:
        append_columns(Append((Event("X"), Event("X", data))))
    assert [error.field for error in caught.value.errors] == ["events[1].data"]


@pytest.mark.parametrize("data", WELCOME_DATA.values(), ids=WELCOME_DATA)
def test_unusual_but_valid_data_is_accepted(data: object) -> None:
    """A hundred levels, any double and any string are valid."""
    [text] = append_columns(Append((Event("X", data),)))["data"]
    assert msgspec.json.decode(text) == data


def test_a_backslash_before_u0000_is_only_text() -> None:
    """The six characters of an escaped U+0000 are valid as characters."""
    assert append_columns(Append((Event("X", {"a": r"\u0000"}),)))["data"] == [r'{"a":"\\u0000"}']


def test_an_array_literal_quotes_everything() -> None:
    """Commas, quotes, braces and backslashes are literal."""
    assert array_literal(['a="{,}\\', "NULL=", ""]) == '{"a=\\"{,}\\\\","NULL=",""}'


def test_a_query_is_an_or_of_items() -> None:
    """An event matches if one item has its type and all the item's tags."""
    query = Query.of("A", "B", tags=["x=1", "y=2"]) | Query.of(tags={"z": 3})
    assert query.matches("B", ["y=2", "x=1", "w=0"])
    assert query.matches("C", ["z=3"])
    assert not query.matches("A", ["x=1"])
    assert not query.matches("C", ["x=1", "y=2"])
    assert Query.all().matches("anything", [])
    with pytest.raises(BadInput, match="item"):
        Query(())


def test_a_query_rejects_strings_for_lists() -> None:
    """A string is rejected: it would be read character by character and match nothing."""
    with pytest.raises(BadInput, match="not a string"):
        Query.of(tags="wallet=1")
    text: Any = "wallet=1"  # the mistake under test, which a type checker would find
    for item in (QueryItem(tags=text), QueryItem(types=text), QueryItem(("Opened",), text)):
        with pytest.raises(BadInput, match="not a string"):
            Query((item,))


def test_raw_json_is_stored_unchanged() -> None:
    """Raw JSON is stored unchanged, also with a null, which could come from a NaN elsewhere."""
    [text] = append_columns(Append((Event("X", {"a": msgspec.Raw(b"[null, 1e3]")}),)))["data"]
    assert text == '{"a":[null, 1e3]}'


def test_numeric_keys_of_a_class_round_trip() -> None:
    """JSON keys are strings; the keys of a class may be numbers."""

    @event("Counted")
    class Counted(msgspec.Struct, frozen=True):
        by_number: dict[int, str]

    [text] = append_columns(Append((as_event(Counted({7: "seven"})),)))["data"]
    stored = SequencedEvent(1, 1, datetime(2026, 1, 1, tzinfo=UTC), "Counted", (), msgspec.json.decode(text))
    assert from_event(Counted, stored) == Counted({7: "seven"})


def test_tags_come_from_the_fields_of_a_declared_class() -> None:
    """A field with a list gives a tag for each value."""
    opened = as_event(WalletOpened(wallet_id=1, owners=["Ada", "Bob"]))
    assert (opened.type, opened.tags) == ("WalletOpened", ("wallet=1", "owner=Ada", "owner=Bob"))
    assert [one.type for one in as_events([WalletOpened(wallet_id=1, owners=[]), Event("Plain")])] == [
        "WalletOpened",
        "Plain",
    ]


def test_a_class_must_be_declared_and_its_tags_must_be_fields() -> None:
    """A misspelt field is an error at the declaration, an undeclared class at the append."""
    with pytest.raises(TypeError, match="wallet_no"):
        event("X", tags={"wallet": "wallet_no"})(WalletOpened)
    with pytest.raises(BadInput, match="int"):
        as_events(5)


def test_period_tags_are_in_utc() -> None:
    """Half past midnight in Rome belongs to the day before in UTC."""
    moment = datetime(2026, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    assert period_tags(moment) == ("year=2025", "month=2025-12", "day=2025-12-31", "hour=2025-12-31T23")
    assert period_tag("month", datetime(2026, 11, 15, tzinfo=UTC)) == "month=2026-11"
    with pytest.raises(BadInput, match="time zone"):
        period_tag("day", datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake under test
