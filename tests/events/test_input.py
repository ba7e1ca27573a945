"""What cannot be stored is told to the caller by the name of its field, and never reaches the database."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import asyncpg
import pytest

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.events import AppendCondition, CombiningWriter, Cursor, Event, EventStore, Query, QueryItem

WRONG = ("nul\0", "\ud800")
ONE = "'{X}', '{\"{}\"}', ARRAY['{}'::jsonb], p_occurred_at => $1::text::timestamptz"
EACH = """append_events_each(jsonb_build_array(
    jsonb_build_object('types', $2::text, 'tags', $3::text, 'data', $4::text::jsonb, 'occurred_at', $1::text)), true)"""
APPENDS: dict[str, tuple[str, ...]] = {
    "append_events": (f"append_events({ONE})",),
    "append_events_batch": (f"append_events_batch({ONE})",),
    "append_events_if": (f"append_events_if({ONE})",),
    "append_events_each, one event": (EACH, "{X}", '{"{}"}', "[{}]"),
    "append_events_each, two events": (EACH, "{X,X}", '{"{}","{}"}', "[{}, {}]"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_ids_that_cannot_be_stored_are_named(store: EventStore, wrong: str) -> None:
    """Of each event, in a list of any length."""
    events = [Event("X"), Event("X", correlation_id=wrong, causation_id=wrong)]
    for given in (events, events * 10):
        with pytest.raises(BadInput) as caught:
            await store.append(given)
        fields = [error.field for error in caught.value.errors][:2]
        assert fields == ["events[1].correlation_id", "events[1].causation_id"]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_query_that_nothing_could_match_is_refused(wrong: str) -> None:
    """A type or a tag that no event can have is a mistake of the caller."""
    with pytest.raises(BadInput) as caught:
        Query((QueryItem(("X",), ("a=1", wrong)), QueryItem((wrong,))))
    assert [error.field for error in caught.value.errors] == ["query[0].tags[1]", "query[1].types[0]"]


@pytest.mark.parametrize(
    "text", ["9:5:///", "0:5:///", "1:5:5///", "1:9:3,2///", f"1:{2**63}:///", f"1:1:///1.{2**63}"]
)
async def test_no_neighbour_hears_of_a_cursor_that_was_made_up(pool: Pool, text: str) -> None:
    """What PostgreSQL would refuse is refused before it joins a batch; what PostgreSQL writes is read."""
    with pytest.raises(BadInput, match="not a cursor"):
        Cursor.parse(text)
    with pytest.raises(asyncpg.PostgresError):
        await pool.fetchval("SELECT parse_event_cursor($1)", text)
    for fine in ("1:1:///", "2:9:2,3,8///7.1", "1:1:/2:9:2,3/0.0/"):
        assert str(Cursor.parse(fine)) == fine
        assert await pool.fetchval("SELECT parse_event_cursor($1) IS NOT NULL", fine)


@pytest.mark.parametrize("position", [-1, 10**18])
def test_a_position_is_a_position(position: int) -> None:
    """A negative one would be no cursor, and a batch would hear of it."""
    with pytest.raises(BadInput, match="position"):
        AppendCondition(Query.all(), position)


async def test_a_time_that_utc_does_not_have_harms_no_neighbour(pool: Pool) -> None:
    """An offset can carry the last hour of 9999 into a year that cannot be read back."""
    writer = CombiningWriter(pool)
    late = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=1)))
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    outcomes = await asyncio.gather(
        *(writer.append(Event("X"), occurred_at=moment) for moment in (late, early, late.replace(tzinfo=UTC))),
        return_exceptions=True,
    )
    assert [isinstance(outcome, BadInput) for outcome in outcomes] == [True, True, False]


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
async def test_sql_refuses_a_time_that_cannot_be_read_back(pool: Pool, append: tuple[str, ...]) -> None:
    """Infinity and far years are PR001 and name the field, whatever function is called; what fits is stored."""
    for moment in ("infinity", "-infinity", "10000-01-01 00:00:00Z", "0001-12-31 00:00:00Z BC"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await pool.fetchval(f"SELECT {append[0]}", moment, *append[1:])
        assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", "occurred_at")
    await pool.fetchval(f"SELECT {append[0]}", "9999-12-31 23:59:59Z", *append[1:])
    assert (await EventStore(pool).read(Query.all())).events[0].occurred_at.year == 9999


async def test_no_row_has_such_a_time(pool: Pool) -> None:
    """Not even one that somebody writes by hand."""
    with pytest.raises(asyncpg.CheckViolationError, match="events_occurred_at_range"):
        await pool.execute(
            "INSERT INTO events (transaction_id, horizon, occurred_at, type, tags, data)"
            " VALUES ('1', '1', 'infinity', 'X', '{}', '{}')"
        )
