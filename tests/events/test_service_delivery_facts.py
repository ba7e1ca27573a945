"""Facts about deliveries are read from the log of steps, in one order with the events of applications."""

import json
from typing import Any

import asyncpg
import pytest
from tests.events.conftest import Opener
from tests.support.acceptance import WAYS, Accept
from tests.support.builders import a_checked_mail
from tests.support.events import WALLET

from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery.model import DeliveryId, Lane
from postroom.errors import BadInput
from postroom.events import AppendCondition, Event, EventSession, EventStore, Query

FILL = """
    INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, lane, channel, source, reason, attempt_no)
    SELECT (SELECT id FROM step_transaction()), n, now(),
        CASE WHEN n % 1000 = 0 THEN 'failed' WHEN n % 2 = 0 THEN 'sent' ELSE 'accepted' END::delivery_step, 'bulk',
        'email', 'tests', NULL, CASE WHEN n % 2 = 0 THEN 1 END
    FROM generate_series($1::int, $2::int) AS n
"""
TOUCHED = """
    SELECT coalesce(sum(seq_scan + idx_scan), 0)::int FROM pg_stat_xact_user_tables
    WHERE relname LIKE 'delivery_steps%' OR relname = 'deliveries'
"""
SCANNED = """
    SELECT coalesce(sum(seq_scan), 0)::int FROM pg_stat_xact_user_tables
    WHERE relname LIKE 'delivery_steps%' OR relname IN ('deliveries', 'events', 'event_tags')
"""
FACTS = {
    "a delivery": Query.of(tags=["postroom.delivery=77"]),
    "a delivery and a type": Query.of("DeliveryAccepted", tags=["postroom.delivery=77"]),
    "a frequent type": Query.of("DeliverySent"),
    "a rare type": Query.of("DeliveryFailed"),
    "a type that never occurs": Query.of("DeliveryRedriven"),
    "everything": Query.all(),
    "an OR": Query.of("DeliveryFailed") | WALLET | Query.of(tags=["postroom.delivery=77"]),
}


async def accept(pool: Pool | asyncpg.Connection) -> DeliveryId:
    if isinstance(pool, asyncpg.Connection):
        return (await service.accept(pool, a_checked_mail())).id
    async with pool.acquire() as connection:
        return (await service.accept(connection, a_checked_mail())).id


async def mixed(pool: Pool, store: EventStore, count: int = 5) -> list[str]:
    """Events and deliveries in turn; returns the types in order."""
    for _ in range(count):
        await store.append(Event.of("Deposited", wallet=1))
        await service.cancel(pool, await accept(pool), actor="tests")
    return ["Deposited", "DeliveryAccepted", "DeliveryCancelled"] * count


@pytest.mark.parametrize("limit", [None, 1, 2, 3, 100])
async def test_events_and_facts_are_one_sequence(pool: Pool, store: EventStore, limit: int | None) -> None:
    """A read of everything returns each event and fact once, in order, for any page size."""
    expected = await mixed(pool, store)
    seen, cursor, found = [], None, 1
    while found:
        page = await store.read(Query.all(), after=cursor, limit=limit)
        cursor, found = page.cursor, len(page.events)
        seen += page.events
    assert [event.type for event in seen] == expected
    assert [event.position for event in seen] == sorted({event.position for event in seen})


async def test_facts_are_read_backwards(pool: Pool, store: EventStore) -> None:
    """Pages backwards contain the same events and facts as those forwards, newest first."""
    expected = await mixed(pool, store)
    seen: list[str] = []
    before = None
    while page := (await store.read(Query.all(), backwards=True, limit=4, before=before)).events:
        seen += [event.type for event in page]
        before = page[-1].place
    assert seen == expected[::-1]
    last = await store.read(Query.of("DeliveryAccepted"), backwards=True, limit=1)
    assert [event.type for event in last.events] == ["DeliveryAccepted"]


async def test_a_fact_has_the_form_of_an_event(pool: Pool, store: EventStore) -> None:
    """Its tag names the delivery; its data has lane, channel and source, and later attempt and reason."""
    delivery_id = await accept(pool)
    await service.cancel(pool, delivery_id, actor="tests")
    accepted, cancelled = (await store.read(Query.of(tags=[f"postroom.delivery={delivery_id}"]))).events
    same = {"delivery": delivery_id, "lane": "transactional", "channel": "email", "source": "python"}
    assert (accepted.type, accepted.tags, accepted.data) == (
        "DeliveryAccepted",
        (f"postroom.delivery={delivery_id}",),
        same,
    )
    assert cancelled.data == {**same, "attempt": 0, "reason": "cancelled_by_operator"}


async def test_own_facts_are_read_before_the_commit_and_once(pool: Pool, opened: Opener) -> None:
    """A transaction reads the facts that it has made; its cursor does not return them again."""
    connection = await opened()
    session = EventSession(connection)
    async with connection.transaction():
        await accept(connection)
        first = await session.read(Query.all())
        await accept(connection)
        second = await session.read(Query.all(), after=first.cursor)
        head = await session.head()
    assert [len(first.events), len(second.events)] == [1, 1]
    assert (await EventStore(pool).read(Query.all(), after=second.cursor)).events == []
    assert (await EventStore(pool).read(Query.all(), after=head.cursor)).events == []


async def test_followers_do_not_skip_facts(store: EventStore, opened: Opener) -> None:
    """A fact of an older transaction that commits later is read before the facts of younger ones."""
    slow, quick = await opened(), await opened()
    transaction = slow.transaction()
    await transaction.start()
    first = await accept(slow)
    second = await accept(quick)
    early = await store.follow(Query.of("DeliveryAccepted"))
    await transaction.commit()
    late = await store.follow(Query.of("DeliveryAccepted"), after=early.cursor)
    assert early.events == []
    assert [event.data["delivery"] for event in late.events] == [first, second]


@pytest.mark.parametrize("query", [WALLET, Query.of("Deposited"), Query.all()], ids=["tag", "type", "everything"])
@pytest.mark.parametrize("send", WAYS.values(), ids=WAYS)
async def test_an_append_does_not_wait_for_a_transaction_that_sent_a_mail(
    store: EventStore, opened: Opener, send: Accept, query: Query
) -> None:
    """An application's open transaction that only sent a mail holds no lock that a condition needs."""
    application = await opened()
    await application.execute("SET lock_timeout = '1ms'")
    async with application.transaction():
        await send(application, Lane.TRANSACTIONAL)
        other = await opened()
        await other.execute("SET lock_timeout = '1ms'")
        await EventSession(other).append(Event.of("Deposited", wallet=1), AppendCondition(query))
    assert len((await store.read(Query.of("DeliveryAccepted"))).events) == 1


@pytest.mark.parametrize(
    "query",
    [Query.of("DeliverySent"), Query.of(tags=["postroom.delivery=5"]), WALLET | Query.of("X", "DeliveryFailed")],
    ids=["type", "tag", "one of several items"],
)
async def test_conditions_must_not_name_facts_about_deliveries(store: EventStore, opened: Opener, query: Query) -> None:
    """The error is the same from Python and SQL, for a condition and for idempotency."""
    for conditions in ({"condition": AppendCondition(query)}, {"idempotency": query}):
        with pytest.raises(BadInput, match="must not name facts about deliveries"):
            await store.append(Event.of("X"), **conditions)
    connection = await opened()
    append = "SELECT append_events('{X}', ARRAY['{}'], ARRAY['{}'::jsonb], p_idempotency => $1::text::jsonb)"
    with pytest.raises(asyncpg.PostgresError, match="must not name facts about deliveries") as refused:
        await connection.execute(append, query.json)
    assert refused.value.sqlstate == "PR001"


@pytest.mark.parametrize(
    "query", [Query.of("DeliverySent", tags=["order=1"]), Query.all()], ids=["own tag", "everything"]
)
async def test_conditions_with_own_tags_may_use_the_same_type(store: EventStore, query: Query) -> None:
    """An application's own events of such a type, with its own tags, are events like any other."""
    await store.append(Event.of("DeliverySent", order=1), AppendCondition(query))
    found = await store.read(Query.of("DeliverySent", tags=["order=1"]))
    assert [event.type for event in found.events] == ["DeliverySent"]


async def test_earlier_steps_of_a_newly_chosen_type_are_no_facts(pool: Pool, store: EventStore) -> None:
    """A choice is valid from its transaction on; a type that is no longer chosen is not visible."""
    await accept(pool)
    async with pool.acquire() as connection:
        await service.choose_facts(connection, [])
        assert (await store.read(Query.all())).events == []
        await service.choose_facts(connection, ["DeliveryAccepted"])
    later = await accept(pool)
    for query in (Query.all(), Query.of("DeliveryAccepted")):
        assert [event.data["delivery"] for event in (await store.read(query)).events] == [later]


async def read_cost(connection: asyncpg.Connection, query: Query, after: str | None, limit: int) -> int:
    """The number of pages that a read touches; it must not scan a table."""
    read = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM read_events($1::text::jsonb, $2, $3)"
    pages: list[int] = []
    for _ in range(2):  # the first run fills the caches of the connection
        async with connection.transaction():
            plan: dict[str, Any] = json.loads(await connection.fetchval(read, query.json, after, limit))[0]["Plan"]
            assert await connection.fetchval(SCANNED) == 0
        pages.append(int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"]))
    return pages[-1]


@pytest.mark.parametrize("query", FACTS.values(), ids=FACTS)
async def test_the_cost_of_reading_facts_does_not_grow(opened: Opener, pool: Pool, query: Query) -> None:
    """From the beginning and after a cursor, with a thousand and with twenty thousand steps, without a scan."""
    connection = await opened()
    await pool.execute("SELECT ensure_partitions('delivery_steps')")
    await read_cost(connection, query, None, 10)
    costs: list[int] = []
    for first, last in ((1, 1000), (1001, 20_000)):
        await pool.execute(FILL, first, last)
        cursor = (await EventSession(connection).head()).cursor
        costs.append(await read_cost(connection, query, None, 10) + await read_cost(connection, query, str(cursor), 10))
    assert costs[1] <= costs[0] + 50


async def test_application_queries_leave_the_steps_alone(opened: Opener, pool: Pool) -> None:
    """Reads by an application's tag or type, and conditional appends, do not read steps."""
    await pool.execute(FILL, 1, 100)
    connection = await opened()
    session = EventSession(connection)
    async with connection.transaction():
        for query in (WALLET, Query.of("Deposited"), Query.of("Deposited", tags=["wallet=1"]) | WALLET):
            await session.append(Event.of("Deposited", wallet=1))
            cursor = (await session.read(query)).cursor
            await session.read(query, after=cursor)
            await session.read(query, backwards=True, limit=1)
            await session.append(Event.of("Deposited", wallet=1), AppendCondition(query, cursor))
        assert await connection.fetchval(TOUCHED) == 0
