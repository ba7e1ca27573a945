"""Decisions, commands, combined writes, and the store on the caller's connection."""

import asyncio
import threading
from datetime import UTC, datetime

import asyncpg
import msgspec
import pytest
from tests.events.conftest import Opener
from tests.support.events import WALLET

from postroom.db.pool import Pool
from postroom.errors import BadInput, IdempotencyConflict
from postroom.events import (
    AppendCondition,
    CombiningWriter,
    Command,
    Event,
    EventSession,
    EventStore,
    Query,
    SequencedEvent,
    event,
    period_tag,
)
from postroom.events.errors import AppendConditionFailed, DuplicateAppend
from postroom.events.serialize import Serializer


@event("Deposited", tags={"wallet": "wallet"})
class Deposited(msgspec.Struct, frozen=True):
    wallet: int
    amount: int


class TooLittle(Exception):  # noqa: N818 - a condition of the example's domain
    """The balance of the wallet is too low."""


def withdrawn(total: int, stored: SequencedEvent) -> int:
    return total - int(stored.data["amount"])


BALANCE = {Deposited: lambda total, deposited: total + deposited.amount, "Withdrawn": withdrawn}


def withdraw_one(balance: int) -> Event:
    if balance < 1:
        raise TooLittle
    return Event.of("Withdrawn", {"amount": 1}, wallet=1)


async def test_a_wallet_is_never_overdrawn(store: EventStore) -> None:
    """Ten tasks withdraw from a wallet that holds five: five succeed and five get an error."""
    await store.append(Deposited(wallet=1, amount=5))
    outcomes = await asyncio.gather(
        *(store.decide(WALLET, 0, BALANCE, withdraw_one, attempts=50) for _ in range(10)), return_exceptions=True
    )
    assert sum(isinstance(outcome, TooLittle) for outcome in outcomes) == 5
    assert (await store.project(0, BALANCE, WALLET))[0] == 0


async def test_a_decision_gives_up_after_its_attempts(store: EventStore, database_url: str) -> None:
    """After its attempts a decision raises an error that names the conflicting event."""
    asked = 0

    async def overtake() -> None:
        rival = await asyncpg.connect(database_url)
        await EventSession(rival, "postroom").append(Event.of("Withdrawn", {"n": asked}, wallet=1))
        await rival.close()

    def overtaken(_: int) -> Event:
        nonlocal asked
        asked += 1
        thread = threading.Thread(target=lambda: asyncio.run(overtake()))
        thread.start()
        thread.join()
        return Event.of("Withdrawn", wallet=1)

    with pytest.raises(AppendConditionFailed) as caught:
        await store.decide(WALLET, 0, {}, overtaken, attempts=3)
    assert (asked, caught.value.position, caught.value.tags) == (3, 3, ("wallet=1",))


async def test_a_decision_may_be_to_do_nothing(store: EventStore) -> None:
    """None and an empty list append nothing; an event without a handler changes no state."""
    assert await store.decide(WALLET, 0, {}, lambda _: None) is None
    assert await store.decide(WALLET, 0, {}, lambda _: []) is None
    await store.append(Event.of("Unheard", wallet=1))
    assert (await store.project(7, BALANCE, WALLET))[0] == 7


async def test_projection_continues_from_a_stored_state(store: EventStore) -> None:
    """Projecting from a state and its cursor gives the same result as projecting everything."""
    await store.append(Deposited(wallet=1, amount=5))
    kept, seen = await store.project(0, BALANCE, WALLET)
    await store.append(Deposited(wallet=1, amount=2))
    newer, cursor = await store.project(kept, BALANCE, WALLET, after=seen)
    assert newer == 7
    await store.append(Event.of("Withdrawn", {"amount": 7}, wallet=1), AppendCondition(WALLET, cursor))


async def test_duplicate_is_reported_before_a_conflict(store: EventStore) -> None:
    """A repeated request is reported as a duplicate, with its first event."""
    once = Query.of("Withdrawn", tags=["withdrawal=7"])
    first = await store.append(Event.of("Withdrawn", wallet=1, withdrawal=7), AppendCondition(WALLET), idempotency=once)
    with pytest.raises(DuplicateAppend) as caught:
        await store.append(Event.of("Withdrawn", wallet=1, withdrawal=7), AppendCondition(WALLET), idempotency=once)
    assert (caught.value.position, caught.value.type) == (first.position, "Withdrawn")
    assert caught.value.tags == ("wallet=1", "withdrawal=7")


async def test_a_command_runs_once(store: EventStore, pool: Pool) -> None:
    """A repeated id returns the first result; the command, its events and its result are one transaction."""
    runs = 0

    async def handle(session: EventSession) -> dict[str, int]:
        nonlocal runs
        runs += 1
        return {"position": (await session.append(Deposited(wallet=1, amount=5))).position}

    command = Command("Deposit", "deposit-1", {"amount": 5}, {"user": "ada"})
    first, second = await store.execute(command, handle), await store.execute(command, handle)
    assert (first.value, second.value, runs) == ({"position": 1}, {"position": 1}, 1)
    assert (first.replayed, second.replayed) == (False, True)
    row = await pool.fetchrow("SELECT c.*, e.transaction_id AS appended FROM commands AS c, events AS e")
    assert row is not None
    assert (row["type"], row["command_id"], row["data"], row["metadata"]) == (
        "Deposit", "deposit-1", '{"amount": 5}', '{"user": "ada"}',
    )  # fmt: skip
    assert row["transaction_id"] == row["appended"]


async def test_concurrent_calls_of_one_command_run_it_once(store: EventStore, pool: Pool) -> None:
    """The other calls wait and get the same result."""
    runs = 0

    async def handle(session: EventSession) -> int:
        nonlocal runs
        runs += 1
        return (await session.append(Event.of("X", wallet=1))).position

    results = await asyncio.gather(*(store.execute(Command("Do", "once"), handle) for _ in range(6)))
    assert ({result.value for result in results}, runs) == ({1}, 1)
    assert sum(result.replayed for result in results) == 5


async def test_a_command_that_fails_may_be_tried_again(store: EventStore, pool: Pool) -> None:
    """An exception of the handler rolls everything back, and the id can be used again."""

    async def fail(session: EventSession) -> None:
        await session.append(Event.of("X", wallet=1))
        raise TooLittle

    async def succeed(session: EventSession) -> str:
        return "done"

    with pytest.raises(TooLittle):
        await store.execute(Command("Do", "again"), fail)
    assert await pool.fetchval("SELECT count(*) FROM events") == 0
    assert (await store.execute(Command("Do", "again"), succeed)).value == "done"


async def test_a_command_s_id_is_not_reused_for_something_else(store: EventStore) -> None:
    """The same id with other data is an error."""

    async def handle(session: EventSession) -> int:
        return 1

    await store.execute(Command("Do", "id", {"a": 1}), handle)
    with pytest.raises(IdempotencyConflict):
        await store.execute(Command("Do", "id", {"a": 2}), handle)


async def test_an_overtaken_command_is_run_again(store: EventStore) -> None:
    """Concurrent commands that decide about one wallet all succeed, one after another."""

    async def handle(session: EventSession) -> int:
        total, seen = await session.project(0, BALANCE, WALLET)
        await session.append(Deposited(wallet=1, amount=1), AppendCondition(WALLET, seen))
        return total

    results = await asyncio.gather(
        *(store.execute(Command("Deposit", f"id-{n}"), handle, attempts=50) for n in range(5))
    )
    assert sorted(result.value for result in results) == [0, 1, 2, 3, 4]


async def test_appends_join_the_caller_s_transaction(store: EventStore, database_url: str, pool: Pool) -> None:
    """Appends on a connection with another search path commit and roll back with the caller's transaction."""
    connection = await asyncpg.connect(database_url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await store.append(Event.of("X", wallet=1), AppendCondition(WALLET), connection=connection)
        await transaction.rollback()
        assert await pool.fetchval("SELECT count(*) FROM events") == 0
        async with connection.transaction():
            await store.append(Event.of("X", wallet=1), AppendCondition(WALLET), connection=connection)
            events, cursor = await store.on(connection).read(WALLET)
            assert len(events) == 1
            await store.append(Event.of("Y", wallet=1), AppendCondition(WALLET, cursor), connection=connection)
            assert (await store.on(connection).head()).position == 3
    finally:
        await connection.close()


async def test_event_store_works_with_sql_alone(database_url: str) -> None:
    """An application that uses only SQL reads, decides and appends, with any search path."""
    connection = await asyncpg.connect(database_url)
    append = """
        SELECT postroom.append_events('{Opened}', ARRAY['{wallet=1,"name=Smith, John"}'], ARRAY['{"a": 1}'::jsonb],
            jsonb_build_object('query', '[{"tags": ["wallet=1"]}]'::jsonb, 'after', $1::text))::text
    """
    try:
        cursor = await connection.fetchval("SELECT postroom.event_cursor_now()")
        first = msgspec.json.decode(await connection.fetchval(append, cursor))
        assert (first["success"], first["message"], first["events_count"]) == (True, "events appended successfully", 1)
        second = msgspec.json.decode(await connection.fetchval(append, cursor))
        assert (second["success"], second["error_code"]) == (False, "DCB_VIOLATION")
        assert second["matched"] == {"position": 1, "type": "Opened", "tags": ["wallet=1", "name=Smith, John"]}
        assert msgspec.json.decode(await connection.fetchval(append, first["cursor"]))["success"]
        async with connection.transaction():
            assert msgspec.json.decode(await connection.fetchval(append, None))["success"] is False
            cursor = await connection.fetchval("SELECT postroom.event_cursor_now()")
            assert msgspec.json.decode(await connection.fetchval(append, cursor))["success"]
            cursor = await connection.fetchval("SELECT postroom.event_cursor_now()")
            assert msgspec.json.decode(await connection.fetchval(append, cursor))["success"]
    finally:
        await connection.close()


async def test_append_events_if_and_batch_answers(pool: Pool) -> None:
    """Defaults, the idempotency query over all events, and a time set by the application are respected."""
    append = "SELECT append_events_if('{A,B}', '{\"{op=1}\",\"{}\"}', ARRAY['1', '{}']::jsonb[], %s)::text"
    fresh = msgspec.json.decode(
        await pool.fetchval(append % "p_idempotency_tags => '{op=1}', p_occurred_at => '2020-02-02T02:02Z'")
    )
    assert (fresh["success"], fresh["events_count"]) == (True, 2)
    again = msgspec.json.decode(
        await pool.fetchval(append % "p_idempotency_tags => '{op=1}', p_after_cursor_position => 99")
    )
    assert again["error_code"] == "IDEMPOTENCY_VIOLATION"
    assert again["message"] == "duplicate operation detected"
    assert msgspec.json.decode(await pool.fetchval(append % "'{}', '{}'"))["success"]
    times = await pool.fetch("SELECT occurred_at = '2020-02-02T02:02Z' AS given FROM events ORDER BY position")
    assert [row["given"] for row in times] == [True, True, False, False]


async def test_combining_writer_answers_each_append(pool: Pool, store: EventStore) -> None:
    """Fifty concurrent appends include five conflicting pairs: one of each pair is rejected, all others succeed."""
    # A long lock timeout: after a short one each append would be committed separately.
    await pool.execute(
        "CREATE OR REPLACE FUNCTION event_patience(p_is_patient boolean) RETURNS text LANGUAGE sql STABLE RETURN '1h'"
    )
    writer = CombiningWriter(pool)

    async def once(number: int) -> bool:
        query = Query.of(tags=[f"seat={number % 45}"])
        try:
            await writer.append(Event.of("Taken", {"n": number}, seat=number % 45), AppendCondition(query))
        except AppendConditionFailed:
            return False
        return True

    outcomes = await asyncio.gather(*(once(number) for number in range(50)))
    assert outcomes.count(False) == 5
    transactions = await pool.fetchval("SELECT count(DISTINCT transaction_id) FROM events")
    assert transactions < 10


async def test_bad_input_fails_alone_in_a_batch(pool: Pool) -> None:
    """A combined append that cannot be stored fails alone."""
    writer = CombiningWriter(pool)
    outcomes = await asyncio.gather(
        writer.append(Event.of("X")),
        writer.append(Event("")),
        writer.append(Event.of("X"), idempotency=Query.of("Y")),
        return_exceptions=True,
    )
    assert [isinstance(outcome, BadInput) for outcome in outcomes] == [False, True, False]


async def test_closed_books_need_not_be_read(store: EventStore) -> None:
    """The documented pattern: a month is opened once, with the last balance; a late entry is rejected."""
    old, new = (period_tag("month", datetime(2026, month, 1, tzinfo=UTC)) for month in (10, 11))
    last, late = Query.of(tags=["wallet=1", old]), Query.of("BooksOpened", tags=["wallet=1", new])
    entry = Event("Deposited", {"amount": 5, "wallet": 1}, ("wallet=1", old))
    await store.append([entry, entry, entry])
    _, seen_before = await store.read(last | late)

    async def open_books() -> int:
        balance, seen = await store.project(0, BALANCE, last | late)
        opened = Event("BooksOpened", {"balance": balance}, ("wallet=1", new))
        return (await store.append(opened, AppendCondition(last | late, seen), idempotency=late)).position

    outcomes = await asyncio.gather(*(open_books() for _ in range(3)), return_exceptions=True)
    assert sum(isinstance(outcome, DuplicateAppend) for outcome in outcomes) == 2
    with pytest.raises(AppendConditionFailed):
        await store.append(entry, AppendCondition(last | late, seen_before))
    books = Query.of(tags=["wallet=1", new])
    handlers = {**BALANCE, "BooksOpened": lambda _, stored: stored.data["balance"]}
    assert (await store.project(0, handlers, books))[0] == 15
    assert len((await store.read(books)).events) == 1


async def test_decider_keeps_its_state_and_reads_new_events(store: EventStore) -> None:
    """Two deciders make ten decisions over five coins: five succeed, and each reads only new events."""
    await store.append(Deposited(wallet=1, amount=5))
    deciders = [store.decider(WALLET, 0, BALANCE) for _ in range(2)]
    assert [await decider.state() for decider in deciders] == [5, 5]
    outcomes = await asyncio.gather(
        *(decider.decide(withdraw_one, attempts=50) for decider in deciders for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, TooLittle) for outcome in outcomes) == 5
    assert [await decider.state() for decider in deciders] == [0, 0]


async def test_decider_may_append_nothing(store: EventStore) -> None:
    """A decision may append nothing."""
    decider = store.decider(WALLET, 0, BALANCE)
    assert await decider.decide(lambda _balance: None) is None
    assert await decider.decide(lambda _balance: []) is None
    assert (await store.read(Query.all())).events == []


async def test_waiting_append_does_not_delay_others(store: EventStore, opened: Opener) -> None:
    """While another transaction holds one tag, appends with other tags are committed."""
    stranger = await opened()
    held = stranger.transaction()
    await held.start()
    busy = Query.of(tags=["wallet=busy"])
    await store.append(Event.of("Opened", {}, wallet="busy"), AppendCondition(busy), connection=stranger)
    waiting = asyncio.create_task(store.append(Event.of("Opened", {}, wallet="busy"), AppendCondition(busy)))
    others = [store.append(Event.of("Opened", {}, wallet=number)) for number in range(5)]
    await asyncio.gather(*others)
    await store.append(Event.of("Opened", {}, wallet="later"))
    assert not waiting.done()
    await held.commit()
    with pytest.raises(AppendConditionFailed):
        await waiting


async def test_serializer_locks_per_query_and_cleans_up() -> None:
    """Decisions by one query run one at a time, by different queries concurrently; no lock is left over."""
    turns = Serializer()
    inside: list[str] = []

    async def stand(key: str, both: asyncio.Event, left: asyncio.Event) -> None:
        async with turns.take(key):
            inside.append(key)
            assert inside.count(key) == 1
            if len(inside) == 2:
                both.set()
            await left.wait()
            inside.remove(key)

    both, left = asyncio.Event(), asyncio.Event()
    standing = [asyncio.create_task(stand(key, both, left)) for key in ("a", "a", "b")]
    await both.wait()
    left.set()
    await asyncio.gather(*standing)
    assert not turns._lines


async def test_decider_restarts_after_a_failed_fold(store: EventStore) -> None:
    """After an interruption no event is counted twice, even if handlers change the state in place."""
    await store.append([Deposited(wallet=1, amount=1), Deposited(wallet=1, amount=2)])
    troubles = [KeyError("once")]

    def count(seen: list[int], deposited: Deposited) -> list[int]:
        if deposited.amount == 2 and troubles:
            raise troubles.pop()
        seen.append(deposited.amount)
        return seen

    initial: list[int] = []
    decider = store.decider(WALLET, initial, {Deposited: count})
    with pytest.raises(KeyError):
        await decider.state()
    assert await decider.state() == [1, 2]
    await store.append(Deposited(wallet=1, amount=3))
    assert await decider.state() == [1, 2, 3]
    assert initial == []
