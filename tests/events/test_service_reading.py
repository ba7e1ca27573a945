"""Reading: order, pages, cursors, and events that come back unchanged."""

from datetime import UTC, datetime

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.events.conftest import Opener
from tests.support.builders import a_mail, accepted
from tests.support.events import REFUSED, WALLET, WON, outcome, seen_up_to

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.events import AppendCondition, Cursor, Event, EventSession, EventStore, Query

HARD_TAGS = (
    "name=Smith, John",
    'a"b{=}"',
    "name=Żółć 💌",
    "empty=",
    "a=b=c",
    "back=\\",
    "null=NULL",
    "n= lead, trail ",
)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


async def positions(store: EventStore, query: Query) -> list[int]:
    return [event.position for event in (await store.read(query)).events]


async def test_events_are_read_unchanged(store: EventStore) -> None:
    """Tags and data come back unchanged and in order, and each tag finds its event."""
    data = {"text": 'é"\\', "number": 1.5, "none": None, "list": [1, {"a": True}]}
    await store.append(Event("Named", data, HARD_TAGS, correlation_id="c", causation_id="d"))
    for tag in HARD_TAGS:
        [event] = (await store.read(Query.of(tags=[tag]))).events
        assert (event.type, event.tags, event.data) == ("Named", HARD_TAGS, data)
        assert (event.correlation_id, event.causation_id) == ("c", "d")
    assert await positions(store, Query.of(tags=["name=Smith"])) == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(values=st.lists(TEXT, min_size=1, max_size=8))
async def test_any_text_is_a_tag_value(store: EventStore, values: list[str]) -> None:
    """A tag value may be any string; it finds its event and comes back unchanged."""
    tags = tuple(f"value={value}" for value in values)
    appended = await store.append(Event("X", {}, tags))
    for tag in tags:
        found = (await store.read(Query.of("X", tags=[tag]))).events
        assert tags == next(event.tags for event in found if event.position == appended.position)


async def test_an_event_may_have_hundreds_of_tags(store: EventStore) -> None:
    """An event with five hundred tags of a thousand bytes is found by the last."""
    tags = tuple(f"t{number}={'x' * 1000}" for number in range(500))
    await store.append(Event("Wide", {}, tags), AppendCondition(Query.of(tags=tags[-1:])))
    assert await positions(store, Query.of(tags=[tags[-1], tags[0]])) == [1]


async def test_pages_have_neither_gaps_nor_repeats_while_others_write(store: EventStore, opened: Opener) -> None:
    """Limited reads stay within their first snapshot; events committed meanwhile come afterwards, once."""
    slow = await opened()
    transaction = slow.transaction()
    await transaction.start()
    await EventSession(slow).append(Event.of("X", wallet=1))
    for _ in range(5):
        await store.append(Event.of("X", wallet=1))
    read, cursor = await store.read(WALLET, limit=2)
    await transaction.commit()
    seen = [event.position for event in read]
    for _ in range(4):
        await store.append(Event.of("X", wallet=1))
        page, cursor = await store.read(WALLET, after=Cursor.parse(str(cursor)), limit=2)
        seen += [event.position for event in page]
    while page:
        page, cursor = await store.read(WALLET, after=cursor, limit=2)
        seen += [event.position for event in page]
    assert sorted(seen) == list(range(1, 11))
    assert seen[:5] == [2, 3, 4, 5, 6]


async def test_cursor_of_a_limited_read_is_safe(store: EventStore) -> None:
    """A decision on the first page only is rejected because of the second page."""
    await store.append([Event.of("X", wallet=1) for _ in range(5)])
    page, cut = await store.read(WALLET, limit=3)
    assert len(page) == 3
    assert await outcome(store.append(Event.of("Y", wallet=1), AppendCondition(WALLET, cut))) == REFUSED
    _, whole = await store.read(WALLET, after=cut, limit=3)
    assert await outcome(store.append(Event.of("Y", wallet=1), AppendCondition(WALLET, whole))) == WON


async def test_the_cursor_of_an_append_has_seen_what_was_appended(store: EventStore) -> None:
    """The next append by the same query need not read its own event, and still sees all others."""
    first = await store.append(Event.of("X", wallet=1), AppendCondition(WALLET))
    second = await store.append(Event.of("X", wallet=1), AppendCondition(WALLET, first.cursor))
    assert second.position == 2
    await store.append(Event.of("X", wallet=1))
    assert await outcome(store.append(Event.of("X", wallet=1), AppendCondition(WALLET, second.cursor))) == REFUSED


async def test_a_transaction_sees_its_own_events_and_counts_them_exactly(opened: Opener, store: EventStore) -> None:
    """Own events that were read are no conflict; own events appended after the read are, even after the commit."""
    connection = await opened()
    session = EventSession(connection)
    async with connection.transaction():
        await session.append(Event.of("X", wallet=1))
        await store.append(Event.of("Other"))  # a later transaction ends: ours is now inside the snapshot
        events, seen = await session.read(WALLET)
        assert [event.position for event in events] == [1]
        assert await outcome(session.append(Event.of("X", wallet=1), AppendCondition(WALLET, seen))) == WON
        assert await outcome(session.append(Event.of("X", wallet=1), AppendCondition(WALLET, seen))) == REFUSED
    assert await outcome(store.append(Event.of("X", wallet=1), AppendCondition(WALLET, seen))) == REFUSED
    assert [event.position for event in (await store.read(WALLET, after=seen)).events] == [3]


async def test_backwards_is_newest_first_and_goes_on_before_a_place(store: EventStore) -> None:
    """Every kind of item can be read backwards; the cursor counts older events as seen."""
    for number in range(1, 7):
        await store.append(Event.of("X", {"n": number}, wallet=1))
    for query in (WALLET, Query.of("X"), Query.all(), WALLET | Query.of("X")):
        newest, cursor = await store.read(query, backwards=True, limit=2)
        assert [event.position for event in newest] == [6, 5]
        older, _ = await store.read(query, backwards=True, limit=3, before=newest[-1].place)
        assert [event.position for event in older] == [4, 3, 2]
        assert (await store.read(query, after=cursor)).events == []


async def test_an_or_returns_each_event_once_in_order(store: EventStore) -> None:
    """An event that matches two items is returned once; a limit counts events."""
    for number in range(6):
        await store.append(Event("X" if number % 2 else "Y", {}, (f"wallet={number % 3}", "bank=1")))
    query = Query.of("X") | Query.of(tags=["wallet=0"]) | Query.of(tags=["bank=1", "wallet=0"])
    assert await positions(store, query) == [1, 2, 4, 6]
    assert [event.position for event in (await store.read(query, limit=3)).events] == [1, 2, 4]


async def test_stream_returns_its_first_snapshot_in_batches(store: EventStore, pool: Pool) -> None:
    """A stream returns all events of its first snapshot, with any batch size, and none appended later."""
    await store.append([Event.of("X", {"n": number}, wallet=1) for number in range(25)])
    seen: list[int] = []
    async for event in store.stream(WALLET, batch=10):
        if not seen:
            await store.append(Event.of("X", {"n": 99}, wallet=1))
        seen.append(event.data["n"])
    assert seen == list(range(25))


async def test_the_place_of_progress_as_two_columns(store: EventStore) -> None:
    """A follower can store transaction id and position, and continue from them as a cursor."""
    for _ in range(4):
        await store.append(Event.of("X", wallet=1))
    first, _ = await store.follow(WALLET, limit=2)
    rest, _ = await store.follow(WALLET, after=seen_up_to(first[-1].place))
    assert [event.position for event in first + rest] == [1, 2, 3, 4]


@pytest.mark.parametrize("cursor", ["9:5:///", "1:1:/5:1:/1.1/"])
async def test_a_cursor_that_postgresql_cannot_read_is_bad_input(store: EventStore, cursor: str) -> None:
    """A forged cursor is bad input."""
    with pytest.raises(BadInput, match="cursor"):
        await store.read(WALLET, after=Cursor.parse(cursor))


async def test_a_query_in_sql_is_checked(pool: Pool) -> None:
    """A misspelt key is an error and not a query that matches everything."""
    for query in ("{}", "[]", "[1]", '[{"tag": ["a=1"]}]', '[{"tags": "a=1"}]', '[{"tags": [1]}]', "null"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await pool.fetch("SELECT * FROM read_events($1::text::jsonb)", query)
        assert caught.value.sqlstate == "PR001"


async def test_a_page_of_latest_events_is_bounded_by_time(store: EventStore, pool: Pool) -> None:
    """Pages go from the newest to the oldest event of a period, facts about deliveries included."""
    hours = [datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in range(10)]
    for hour in hours:
        await store.append(Event.of("Counted", {"hour": hour.hour}), occurred_at=hour)
    [delivery_id] = await accepted(pool, a_mail())
    noon = hours[0].replace(hour=12)
    await pool.execute("UPDATE deliveries SET created_at = $1 WHERE id = $2", noon, delivery_id)

    async def found(query: Query, since: int | None, until: int | None, limit: int = 50) -> list[int]:
        period = tuple(None if hour is None else hours[0].replace(hour=hour) for hour in (since, until))
        read: list[int] = []
        cursor = None
        while True:
            page, cursor = await store.latest(query, period=(period[0], period[1]), cursor=cursor, limit=limit)
            read += [event.data["hour"] for event in page.events if event.type == "Counted"]
            if cursor is None:
                return read

    counted = Query.of("Counted")
    assert await found(counted, None, None, limit=3) == list(range(9, -1, -1))
    assert await found(counted, 3, 7, limit=2) == [6, 5, 4, 3]
    assert await found(counted, None, 1) == [0]
    assert await found(counted, 10, None) == []
    assert await found(Query.all(), 8, 12) == [9, 8]
    facts, _more = await store.latest(Query.all(), period=(noon, None))
    assert [event.type for event in facts.events] == ["DeliveryAccepted"]
    assert (await store.latest(Query.all(), period=(None, hours[0])))[0].events == []


async def test_a_search_in_bounded_steps_finds_every_event(store: EventStore) -> None:
    """Pages that read two events of a tag find the same events, in the same order, as one read."""
    for number in range(24):
        tags = {"side": "in" if number % 3 else "out", "half": number // 12, "last": number > 20}
        type_ = "Even" if number % 2 == 0 else "Odd"
        await store.append([Event.of(type_, {"number": number, "n": n}, **tags) for n in (1, 2)])
    sides = Query.of(tags={"half": 0, "side": "out"})
    for query in (
        sides,
        Query.of("Even", tags={"side": "in"}),
        Query.of("Even", "Odd", tags={"half": 1, "side": "in", "last": True}),
        sides | Query.of("Odd", tags={"half": 1}) | Query.of(tags={"last": True}),
        Query.of("Even", tags=["half=0", "half=1"]),
    ):
        exact = await store.read(query, backwards=True)
        found, cursor = await store.latest(query, limit=3, bound=2)
        pages = [found.events]
        while cursor is not None:
            found, cursor = await store.latest(query, limit=3, bound=2, cursor=cursor)
            pages.append(found.events)
        assert [event for page in pages for event in page] == exact.events
        assert max(map(len, pages)) <= 3
