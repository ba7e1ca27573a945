"""Values that cannot be stored are rejected with the name of the field, before the database."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta, timezone

import asyncpg
import msgspec
import pytest

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.events import AppendCondition, CombiningWriter, Cursor, Event, EventStore, Query, QueryItem
from postroom.events.errors import EventUnreadable

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
    """The error names the ids of each event, in lists of any length."""
    events = [Event("X"), Event("X", correlation_id=wrong, causation_id=wrong)]
    for given in (events, events * 10):
        with pytest.raises(BadInput) as caught:
            await store.append(given)
        fields = [error.field for error in caught.value.errors][:2]
        assert fields == ["events[1].correlation_id", "events[1].causation_id"]


@pytest.mark.parametrize("wrong", WRONG)
def test_query_that_cannot_match_is_rejected(wrong: str) -> None:
    """A type or tag that no event can have is an error of the caller."""
    with pytest.raises(BadInput) as caught:
        Query((QueryItem(("X",), ("a=1", wrong)), QueryItem((wrong,))))
    assert [error.field for error in caught.value.errors] == ["query[0].tags[1]", "query[1].types[0]"]


@pytest.mark.parametrize("wrong", ["wallet:1", "wallet", "=1", "", "wallet=" + "é" * 600])
async def test_condition_with_an_invalid_tag_is_rejected(store: EventStore, pool: Pool, wrong: str) -> None:
    """Such a condition or idempotency query would always hold; it is rejected in Python and in SQL."""
    with pytest.raises(BadInput, match=r"query\[0\]\.tags\[0\]"):
        Query.of(tags=[wrong])
    if "=" in wrong[1:]:
        return  # SQL does not check the length here
    one = "'{A}', '{\"{w=1}\"}', ARRAY['{}']::jsonb[]"
    item = [{"types": [], "tags": [wrong]}]
    for call, value in (
        (f"append_events_if({one}, null, $1)", [wrong]),
        (f"append_events_if({one}, p_idempotency_tags => $1)", ["w=1", wrong]),
        (f"append_events({one}, p_condition => $1::text::jsonb)", msgspec.json.encode({"query": item}).decode()),
        (f"append_events({one}, p_idempotency => $1::text::jsonb)", msgspec.json.encode(item).decode()),
        ("read_events($1::text::jsonb)", msgspec.json.encode(item).decode()),
        ("read_events($1::text::jsonb)", msgspec.json.encode([*item, {}]).decode()),
        ("read_events_backwards($1::text::jsonb)", msgspec.json.encode(item).decode()),
    ):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await pool.fetch(f"SELECT {call}", value)
        assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", "query"), call
    assert (await store.read(Query.all())).events == []


async def test_sql_accepts_any_valid_tag(pool: Pool, store: EventStore) -> None:
    """Line breaks in the key, several equals signs and an empty value are valid: the second append is rejected."""
    for tag in ("a\nb=1", "a==", "a=", "ä ö=\n"):
        call = "append_events_if('{A}', ARRAY[ARRAY[$1]::text], ARRAY['{}']::jsonb[], null, ARRAY[$1::text])"
        assert [await pool.fetchval(f"SELECT {call} ->> 'success'", tag) for _ in range(2)] == ["true", "false"]
        assert len((await store.read(Query.of(tags=[tag]))).events) == 1


@pytest.mark.parametrize(
    "text", ["9:5:///", "0:5:///", "1:5:5///", "1:9:3,2///", f"1:{2**63}:///", f"1:1:///1.{2**63}"]
)
async def test_forged_cursor_does_not_fail_a_batch(pool: Pool, text: str) -> None:
    """A forged cursor is rejected before it joins a batch; every cursor of PostgreSQL is accepted."""
    with pytest.raises(BadInput, match="not a cursor"):
        Cursor.parse(text)
    with pytest.raises(asyncpg.PostgresError):
        await pool.fetchval("SELECT parse_event_cursor($1)", text)
    for fine in ("1:1:///", "2:9:2,3,8///7.1", "1:1:/2:9:2,3/0.0/"):
        assert str(Cursor.parse(fine)) == fine
        assert await pool.fetchval("SELECT parse_event_cursor($1) IS NOT NULL", fine)


@pytest.mark.parametrize("position", [-1, 10**18])
def test_negative_position_is_rejected(position: int) -> None:
    """A negative position is rejected before it joins a batch."""
    with pytest.raises(BadInput, match="position"):
        AppendCondition(Query.all(), position)


async def test_time_outside_utc_does_not_fail_a_batch(pool: Pool) -> None:
    """An offset can move the last hour of 9999 into a year that cannot be read back."""
    writer = CombiningWriter(pool)
    late = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=1)))
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    outcomes = await asyncio.gather(
        *(writer.append(Event("X"), occurred_at=moment) for moment in (late, early, late.replace(tzinfo=UTC))),
        return_exceptions=True,
    )
    assert [isinstance(outcome, BadInput) for outcome in outcomes] == [True, True, False]


async def test_a_time_without_a_zone_is_refused(store: EventStore) -> None:
    """A time without a zone could mean different times in small and in large appends."""
    naive = datetime(2030, 1, 31, 9)  # noqa: DTZ001 - the mistake under test
    for events in (Event("X"), [Event("X")] * 20):
        with pytest.raises(BadInput, match="occurred_at: must have a time zone"):
            await store.append(events, occurred_at=naive)


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
async def test_sql_refuses_a_time_that_cannot_be_read_back(pool: Pool, append: tuple[str, ...]) -> None:
    """Infinity and far years raise PR001 with the field, in every function; valid times are stored."""
    for moment in ("infinity", "-infinity", "10000-01-01 00:00:00Z", "0001-12-31 00:00:00Z BC"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await pool.fetchval(f"SELECT {append[0]}", moment, *append[1:])
        assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", "occurred_at")
    await pool.fetchval(f"SELECT {append[0]}", "9999-12-31 23:59:59Z", *append[1:])
    assert (await EventStore(pool).read(Query.all())).events[0].occurred_at.year == 9999


async def test_table_rejects_times_out_of_range(pool: Pool) -> None:
    """A constraint rejects such a time even in a direct INSERT."""
    with pytest.raises(asyncpg.CheckViolationError, match="events_occurred_at_range"):
        await pool.execute(
            "INSERT INTO events (transaction_id, horizon, occurred_at, type, tags, data)"
            " VALUES ('1', '1', 'infinity', 'X', '{}', '{}')"
        )


async def test_a_limit_is_not_negative(store: EventStore, pool: Pool) -> None:
    """A limit of 0 reads nothing and its cursor has seen nothing; a negative one is rejected in Python and SQL."""
    await store.append(Event.of("X", wallet=1))
    for query in (Query.all(), Query.of(tags=["wallet=1"])):
        nothing, seen = await store.read(query, limit=0)
        assert (nothing, len((await store.read(query, after=seen)).events)) == ([], 1)
        for limit in (-1, -2, 2**63 - 1):
            for read in (store.read(query, limit=limit), store.follow(query, limit=limit)):
                with pytest.raises(BadInput, match="limit"):
                    await read
            with pytest.raises(BadInput, match="limit"):
                await store.read(query, limit=limit, backwards=True)
    with pytest.raises(BadInput, match="batch"):
        [event async for event in store.stream(Query.all(), batch=0)]
    for function in ("read_events", "read_events_backwards"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await pool.fetch(f"SELECT * FROM {function}('[{{}}]', p_limit => -5)")
        assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", "limit")


UNREADABLE = {
    "a number": "'{po=1}', to_jsonb('1e5000'::numeric)",
    "levels": "'{po=1}', (repeat('[', 1500) || repeat(']', 1500))::jsonb",
    "tags in tags": "'{{po=1},{po=2}}', '{}'",
}


@pytest.mark.parametrize("row", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_event_that_cannot_be_read_is_named(store: EventStore, pool: Pool, row: str) -> None:
    """The error names the position of an unreadable event, written by an old version or directly."""
    await store.append([Event.of("X", po=1), Event.of("X", po=1)])
    await poison(pool, row)
    query = Query.of(tags=["po=1"])
    assert len((await store.read(query, limit=1)).events) == 1
    for read in (
        store.read(query, limit=10),
        store.read(query),
        store.read(Query.all(), backwards=True),
        store.follow(Query.of("X")),
    ):
        with pytest.raises(EventUnreadable) as caught:
            await read
        assert caught.value.position == 3


@pytest.mark.parametrize("row", UNREADABLE.values(), ids=UNREADABLE)
async def test_error_has_the_cursor_after_an_unreadable_event(store: EventStore, pool: Pool, row: str) -> None:
    """The error has the cursor after the event, for reading and following."""
    await store.append(Event.of("X", po=1))
    await poison(pool, row)
    await store.append([Event.of("X", po=1), Event.of("X", po=1)])
    query = Query.of(tags=["po=1"])
    for read in (store.read, store.follow):
        with pytest.raises(EventUnreadable, match="To continue after it") as caught:
            await read(query, limit=10)
        assert caught.value.beyond is not None
        events, cursor = await read(query, after=Cursor.parse(caught.value.beyond), limit=10)
        assert [event.position for event in events] == [3, 4]
        assert (await read(query, after=cursor, limit=10)).events == []


async def poison(pool: Pool, row: str) -> None:
    """Store an event that SQL accepts and clients cannot read."""
    await pool.execute(
        "WITH poison AS (INSERT INTO events (transaction_id, horizon, type, tags, data)"
        f" VALUES (pg_current_xact_id(), pg_current_xact_id(), 'X', {row}) RETURNING transaction_id, position)"
        " INSERT INTO event_tags (tag, transaction_id, position, type)"
        " SELECT 'po=1', transaction_id, position, 'X' FROM poison"
    )


BAD_ARGUMENTS = [
    ("'{}', '{}', '{}'", "events"),
    ("'{A}', '{}', '{}'", "events"),
    ("ARRAY[''], '{\"{}\"}', ARRAY['1'::jsonb]", "events[0]"),
    ("'{A,B}', '{\"{}\",\"{colon:1}\"}', ARRAY['1', '2']::jsonb[]", "events[1]"),
    ("'{A}', '{\"{=x}\"}', ARRAY['1'::jsonb]", "events[0]"),
    ("'{A}', '{NULL}', ARRAY['1'::jsonb]", "events[0]"),
    ("'{A}', '{\"{}\"}', ARRAY[NULL::jsonb]", "events[0]"),
    ("'{A}', '{a=1}', ARRAY['1'::jsonb]", "events"),
    ("'{A}', '{\"{a=1\"}', ARRAY['1'::jsonb]", "events"),
    ("'{A}', ARRAY['[5:4]={a=1}'], ARRAY['1'::jsonb]", "events"),
    ("'{A}', '{\"{{a=1},{a=2}}\"}', ARRAY['1'::jsonb]", "events[0]"),
    ("'[0:0]={A}', '{\"{}\"}', ARRAY['1'::jsonb]", "events"),
    ("'{{A}}', '{{\"{}\"}}', ARRAY[['1'::jsonb]]", "events"),
    ("'{A}', '{{\"{}\"}}', ARRAY['1'::jsonb]", "events"),
    ("'{A}', '{\"{}\"}', ARRAY['1'::jsonb], p_correlation_ids => '{a,b}'", "correlation_ids"),
    ("'{A,B}', '{\"{}\",\"{}\"}', ARRAY['1', '2']::jsonb[], p_causation_ids => '{a}'", "causation_ids"),
    ("'{A}', '{\"{}\"}', ARRAY[to_jsonb('1e5000'::numeric)]", "events[0]"),
    ("'{A}', '{\"{}\"}', ARRAY[jsonb_build_object('a', ARRAY[1, -1.8e308])]", "events[0]"),
    ("'{A,B}', '{\"{}\",\"{}\"}', ARRAY['1', repeat('[', 101) || repeat(']', 101)]::jsonb[]", "events[1]"),
    ("'{A}', '{\"{}\"}', ARRAY[(repeat('{\"a\":', 1500) || 1 || repeat('}', 1500))::jsonb]", "events[0]"),
    ("'{A}', '{\"{}\"}', ARRAY['1'::jsonb], '{\"query\": 5}'", "query"),
    ("'{A}', '{\"{}\"}', ARRAY['1'::jsonb], '{\"query\": [{}], \"after\": \"x\"}'", "after"),
]


async def test_bad_input_in_sql_names_the_field(pool: Pool) -> None:
    """SQL callers get the name of the field too, and nothing is stored."""
    for arguments, field in BAD_ARGUMENTS:
        with pytest.raises(asyncpg.PostgresError) as caught:
            await pool.fetchval(f"SELECT append_events({arguments})")
        assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", field), arguments
    assert await pool.fetchval("SELECT count(*) FROM events") == 0


async def test_sql_accepts_readable_data(pool: Pool, store: EventStore) -> None:
    """A hundred levels, the largest double, more digits in strings or decimals, and no ids are valid."""
    largest = int(sys.float_info.max)
    data = ["[" * 100 + "]" * 100, f"[{largest}, -{largest}]", '"' + "9" * 400 + '"', "0." + "1" * 400]
    await pool.fetchval(
        "SELECT append_events($1, $2, $3::text[]::jsonb[], p_correlation_ids => '{}')", ["A"] * 4, ["{}"] * 4, data
    )
    read = [event.data for event in (await store.read(Query.all())).events]
    assert read == [msgspec.json.decode(text) for text in data]
