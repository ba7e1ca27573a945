"""Facts of one delivery are read in their order, also if the transaction of a later one began first."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from importlib.resources import files

import asyncpg
import pytest
from tests.events.conftest import Opener
from tests.support.accounts import sign_up
from tests.support.builders import BUSY, Hands, Recording, a_mail, a_worker, accepted
from tests.support.outbox import settled
from tests.support.plans import nodes, planning_session
from tests.support.sessions import until_blocked

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import store as statements
from postroom.delivery.model import DeliveryId, Lane
from postroom.events import Cursor, Event, EventSession, EventStore, Query
from postroom.stats.worker import Rollup

Writer = Callable[[asyncpg.Connection, DeliveryId], Awaitable[object]]

TOPIC = """
    INSERT INTO outbox_topics (name, types, required_keys, any_keys, exact_tags) VALUES ('all', '{}', '{}', '{}', '{}');
    INSERT INTO outbox_topic_progress (topic, publisher) VALUES ('all', 'log')
"""
FOLLOWED = """
    WITH next AS MATERIALIZED (SELECT * FROM follow_topic('all', 'log', 100, 1000)),
    moved AS (
        UPDATE outbox_topic_progress SET last_transaction_id = end_transaction_id, last_position = end_position
        FROM (SELECT end_transaction_id, end_position FROM next LIMIT 1) AS reached
    )
    SELECT type FROM next WHERE type IS NOT NULL ORDER BY transaction_id, position
"""
TOKEN = {"source": "accounts", "idempotency_key": "token:1"}


async def cancel(connection: asyncpg.Connection, delivery_id: DeliveryId) -> None:
    await connection.execute("SELECT cancel_deliveries(ARRAY[$1::bigint], 'tests')", delivery_id)


async def cancel_the_token(connection: asyncpg.Connection, delivery_id: DeliveryId) -> None:
    await connection.execute("UPDATE tokens SET expires_at = 0")


async def cancel_in_the_view(connection: asyncpg.Connection, delivery_id: DeliveryId) -> None:
    await connection.execute("UPDATE email_queue SET status = 'cancelled' WHERE id = $1", delivery_id)


async def withdraw(connection: asyncpg.Connection, delivery_id: DeliveryId) -> None:
    await connection.execute("SELECT withdraw_deliveries(ARRAY[$1::bigint], 'tests')", delivery_id)


async def erase(connection: asyncpg.Connection, delivery_id: DeliveryId) -> None:
    await connection.execute("SELECT erase_deliveries('ada@example.org', 'erased:1')")


async def fail_unwritable(connection: asyncpg.Connection, delivery_id: DeliveryId) -> None:
    await statements.fail_unwritable(
        connection, delivery_id=[delivery_id], claim_id=[], reason=["render_failed"], detail=["no name"], now=None
    )


async def redrive(connection: asyncpg.Connection, delivery_id: DeliveryId) -> None:
    await statements.redrive(connection, delivery_ids=[delivery_id], now=None)


async def settle(connection: asyncpg.Connection, delivery_id: DeliveryId) -> None:
    await connection.execute("UPDATE dead_letters SET reason = 'ambiguous'")
    await statements.settle_ambiguous(connection, delivery_id=delivery_id)


WAITING: dict[str, tuple[Writer, str]] = {
    "cancel_deliveries": (cancel, "DeliveryCancelled"),
    "a trigger": (cancel_the_token, "DeliveryCancelled"),
    "the view": (cancel_in_the_view, "DeliveryCancelled"),
    "withdraw_deliveries": (withdraw, "DeliveryCancelled"),
    "erase_deliveries": (erase, "DeliveryCancelled"),
    "fail_unwritable": (fail_unwritable, "DeliveryFailed"),
}
GIVEN_UP: dict[str, tuple[Writer, str]] = {
    "redrive": (redrive, "DeliveryRedriven"),
    "settle_ambiguous": (settle, "DeliverySent"),
}


class Readers:
    """Every kind of reader, with its own cursor."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._store = pool, EventStore(pool)
        self._read: Cursor | None = None
        self._paged: Cursor | None = None
        self._followed: Cursor | None = None
        self.seen: dict[str, list[str]] = {"read": [], "paged": [], "follow": [], "topic": []}

    async def advance(self) -> None:
        """Read what is new."""
        read = await self._store.read(Query.all(), after=self._read)
        followed = await self._store.follow(Query.all(), after=self._followed)
        self._read, self._followed = read.cursor, followed.cursor
        self.seen["read"] += [event.type for event in read.events]
        self.seen["follow"] += [event.type for event in followed.events]
        self.seen["topic"] += [row["type"] for row in await self._pool.fetch(FOLLOWED)]
        while True:
            page = await self._store.read(Query.all(), after=self._paged, limit=1)
            self._paged = page.cursor
            self.seen["paged"] += [event.type for event in page.events]
            if page.cursor.page is None:
                return

    async def all_saw(self, *expected: str) -> None:
        """Check the facts read so far, and those that readers from the beginning read, by each kind of query."""
        await settled(self._pool)
        await self.advance()
        assert self.seen == {reader: [*expected] for reader in self.seen}
        delivery_id = await self._pool.fetchval("SELECT max(delivery_id) FROM all_steps")
        for query in (Query.all(), Query.of(tags=[f"postroom.delivery={delivery_id}"])):
            assert [event.type for event in (await self._store.read(query)).events] == [*expected]
            assert [event.type for event in (await self._store.follow(query)).events] == [*expected]
            latest = (await self._store.read(query, backwards=True)).events
            assert [event.type for event in latest] == [*expected][::-1]


@pytest.fixture
async def readers(pool: Pool) -> Readers:
    await pool.execute(TOPIC)
    return Readers(pool)


@pytest.fixture
async def old(opened: Opener) -> asyncpg.Connection:
    return await opened()


@pytest.mark.parametrize("reads_between", [False, True])
@pytest.mark.parametrize("writer, expected", WAITING.values(), ids=WAITING)
async def test_a_step_of_an_older_transaction_follows_the_acceptance(
    pool: Pool, readers: Readers, old: asyncpg.Connection, writer: Writer, expected: str, *, reads_between: bool
) -> None:
    """The acceptance has a higher transaction id than the step that follows it; no cursor skips or repeats either."""
    await sign_up(pool)
    async with old.transaction():
        await old.execute("SELECT pg_current_xact_id()")
        [delivery_id] = await accepted(pool, a_mail(**TOKEN))
        if reads_between:
            await readers.advance()
        await writer(old, delivery_id)
        if reads_between:
            await readers.advance()
    await readers.all_saw("DeliveryAccepted", expected)


async def work(pool: Pool, hands: Hands, *, count: int) -> None:
    """Let a worker try the mail that is due, with a temporary failure each time."""
    worker = a_worker(pool, Recording(BUSY), clock=hands)
    for _ in range(count):
        hands.forward(minutes=10)
        assert await worker.run_once(Lane.AUTH) == 1


@pytest.mark.parametrize("writer, expected", WAITING.values(), ids=WAITING)
async def test_a_step_of_an_older_transaction_follows_those_of_a_worker(
    pool: Pool, readers: Readers, old: asyncpg.Connection, writer: Writer, expected: str
) -> None:
    """A worker attempts the mail meanwhile, in transactions with higher ids."""
    hands = Hands()
    await sign_up(pool)
    [delivery_id] = await accepted(pool, a_mail(lane=Lane.AUTH, **TOKEN), now=hands())
    async with old.transaction():
        await old.execute("SELECT pg_current_xact_id()")
        await work(pool, hands, count=2)
        await readers.advance()
        await writer(old, delivery_id)
        await readers.advance()
    await readers.all_saw("DeliveryAccepted", "DeliveryDeferred", "DeliveryDeferred", expected)


@pytest.mark.parametrize("writer, expected", GIVEN_UP.values(), ids=GIVEN_UP)
async def test_a_decision_of_an_older_transaction_follows_the_dead_letter(
    pool: Pool, readers: Readers, old: asyncpg.Connection, writer: Writer, expected: str
) -> None:
    """The same for the steps that end a dead letter, and for a further step of the same transaction."""
    hands = Hands()
    [delivery_id] = await accepted(pool, a_mail(lane=Lane.AUTH), now=hands())
    async with old.transaction():
        await old.execute("SELECT pg_current_xact_id()")
        await work(pool, hands, count=6)
        await readers.advance()
        await writer(old, delivery_id)
        await cancel(old, delivery_id)
        await readers.advance()
    last = [expected, "DeliveryCancelled"] if expected == "DeliveryRedriven" else [expected]
    await readers.all_saw("DeliveryAccepted", *["DeliveryDeferred"] * 5, "DeliveryDeadLettered", *last)


@pytest.mark.parametrize("has_savepoint", [False, True])
async def test_a_statement_that_waited_for_a_lock_sees_the_steps_made_meanwhile(
    pool: Pool, readers: Readers, old: asyncpg.Connection, opened: Opener, *, has_savepoint: bool
) -> None:
    """A statement begins, waits for another delivery, and then changes one that a worker has deferred meanwhile."""
    hands = Hands()
    held, tried = await accepted(pool, a_mail(lane=Lane.AUTH), a_mail(lane=Lane.AUTH), now=hands())
    holder = await opened()
    async with old.transaction():
        await old.execute("SELECT pg_current_xact_id()")
        if has_savepoint:
            await old.execute("SAVEPOINT one")
        holding = holder.transaction()
        await holding.start()
        await holder.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", held)
        waiting = asyncio.create_task(old.execute("SELECT cancel_deliveries($1, 'tests')", [held, tried]))
        await until_blocked(pool, unless=waiting)
        await work(pool, hands, count=1)
        await holding.rollback()
        await waiting
        await readers.advance()
    both = ["DeliveryAccepted"] * 2
    await readers.advance()
    of_tried = await EventStore(pool).read(Query.of(tags=[f"postroom.delivery={tried}"]))
    assert [event.type for event in of_tried.events] == [both[0], "DeliveryDeferred", "DeliveryCancelled"]
    await settled(pool)
    await readers.advance()
    for seen in readers.seen.values():
        assert sorted(seen) == [*both, "DeliveryCancelled", "DeliveryCancelled", "DeliveryDeferred"]
        assert seen[-1] == "DeliveryCancelled"


@pytest.mark.parametrize("writer", [cancel, erase])
async def test_the_time_of_a_step_is_not_before_the_acceptance(
    pool: Pool, old: asyncpg.Connection, writer: Writer
) -> None:
    """The transaction that cancels a mail may have begun before the mail was accepted."""
    async with old.transaction():
        await old.execute("SELECT pg_current_xact_id()")
        [delivery_id] = await accepted(pool)
        await writer(old, delivery_id)
    times = [row["at"] for row in await pool.fetch("SELECT at FROM all_steps ORDER BY position")]
    assert times == sorted(times)
    assert await pool.fetchval("SELECT finished_at >= created_at FROM deliveries")


async def test_a_follower_reads_a_step_of_an_older_transaction_after_the_acceptance(
    pool: Pool, readers: Readers, old: asyncpg.Connection, opened: Opener
) -> None:
    """A third transaction is open, with an id between theirs: it holds back the acceptance, and so the step."""
    between = await opened()
    async with between.transaction():
        async with old.transaction():
            await old.execute("SELECT pg_current_xact_id()")
            await between.execute("SELECT pg_current_xact_id()")
            [delivery_id] = await accepted(pool)
            await cancel(old, delivery_id)
        await readers.advance()
        assert readers.seen["follow"] == readers.seen["topic"] == []
    await readers.all_saw("DeliveryAccepted", "DeliveryCancelled")


async def test_a_follower_that_begins_at_the_head_skips_no_step(
    pool: Pool, old: asyncpg.Connection, opened: Opener, store: EventStore
) -> None:
    """The head has seen the acceptance, not the step, and the follower's horizon is between their transactions."""
    between = await opened()
    async with between.transaction():
        async with old.transaction():
            await old.execute("SELECT pg_current_xact_id()")
            await between.execute("SELECT pg_current_xact_id()")
            [delivery_id] = await accepted(pool)
            head = await store.head()
            await cancel(old, delivery_id)
        early = await store.follow(Query.all(), after=head.cursor)
    await settled(pool)
    late = await store.follow(Query.all(), after=early.cursor)
    assert [event.type for event in early.events + late.events] == ["DeliveryCancelled"]


async def test_a_repeatable_read_transaction_that_is_too_old_changes_nothing(
    pool: Pool, readers: Readers, old: asyncpg.Connection
) -> None:
    """Its snapshot does not contain the steps that it would have to follow: PostgreSQL raises 40001."""
    hands = Hands()
    [delivery_id] = await accepted(pool, a_mail(lane=Lane.AUTH), now=hands())
    transaction = old.transaction(isolation="repeatable_read")
    await transaction.start()
    await old.execute("SELECT pg_current_xact_id()")
    await work(pool, hands, count=1)
    with pytest.raises(asyncpg.SerializationError):
        await cancel(old, delivery_id)
    await transaction.rollback()
    await readers.all_saw("DeliveryAccepted", "DeliveryDeferred")


async def test_a_page_that_was_begun_before_the_commit_has_no_later_steps(
    pool: Pool, old: asyncpg.Connection, store: EventStore
) -> None:
    """A read of several pages stays within its first snapshot; the next read returns each step once."""
    async with old.transaction():
        await old.execute("SELECT pg_current_xact_id()")
        deliveries = await accepted(pool, a_mail(), a_mail())
        page = await store.read(Query.all(), limit=1)
        for delivery_id in deliveries:
            await cancel(old, delivery_id)
    found: list[str] = []
    while page.events:
        found += [event.type for event in page.events]
        page = await store.read(Query.all(), after=page.cursor, limit=1)
    assert found == ["DeliveryAccepted"] * 2 + ["DeliveryCancelled"] * 2
    cut = await store.read(Query.all(), limit=3)
    rest = await store.read(Query.all(), after=cut.cursor, backwards=True)
    assert [event.position for event in rest.events] == [(await store.head()).position]


async def test_a_transaction_reads_its_step_with_a_later_id_after_its_commit(
    pool: Pool, old: asyncpg.Connection, store: EventStore
) -> None:
    """No cursor of the transaction itself covers the step, whatever else it wrote."""
    session = EventSession(old)
    async with old.transaction():
        await session.append(Event.of("Opened"))
        [delivery_id] = await accepted(pool)
        await cancel(old, delivery_id)
        await session.append(Event.of("Closed"))
        inside = await session.read(Query.all())
        head = await session.head()
    assert [event.type for event in inside.events] == ["Opened", "Closed", "DeliveryAccepted"]
    for cursor in (inside.cursor, head.cursor):
        assert [event.type for event in (await store.read(Query.all(), after=cursor)).events] == ["DeliveryCancelled"]


async def test_the_steps_of_a_delivery_are_found_by_their_index(room: Room) -> None:
    """Neither table is scanned, and the index of the order is not read, however many steps there are."""
    source = (files("postroom.delivery") / "functions" / "assign_step_place.sql").read_text()
    query = source[source.index("SELECT max") : source.index("AS found") + len("AS found")]
    async with planning_session(room) as session:
        await session.execute("SET enable_seqscan = off")  # as the function does
        await session.execute(f"PREPARE highest AS {query.replace('p_delivery_id', '$1::bigint')}")
        plan = nodes(json.loads(await session.fetchval("EXPLAIN (FORMAT JSON) EXECUTE highest(1)"))[0]["Plan"])
    indexes = {node["Index Name"] for node in plan if "Index Name" in node}
    assert {name for name in indexes if not name.startswith("delivery_steps")} == {"deliveries_pkey"}
    assert all("expr" in name for name in indexes - {"deliveries_pkey"})
    assert "Seq Scan" not in {node["Node Type"] for node in plan}


async def test_statistics_count_a_step_of_an_older_transaction_once(pool: Pool, old: asyncpg.Connection) -> None:
    """The rollup runs before, between and after, and agrees with a new count of all steps."""
    counted = "SELECT coalesce(sum(amount), 0)::int FROM stats_hourly WHERE metric = 'cancelled'"
    async with old.transaction():
        await old.execute("SELECT pg_current_xact_id()")
        [delivery_id] = await accepted(pool)
        await Rollup(pool).run_once()
        await cancel(old, delivery_id)
        await Rollup(pool).run_once()
    await settled(pool)
    await Rollup(pool).run_once()
    assert await pool.fetchval(counted) == 1
    await pool.execute("SELECT rebuild_stats()")
    assert await pool.fetchval(counted) == 1
