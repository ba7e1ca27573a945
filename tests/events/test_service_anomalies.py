"""Known anomalies of conditional appends, with real concurrent transactions."""

import asyncio

import asyncpg
import pytest
from tests.events.conftest import Opener
from tests.support.events import LEVELS, REFUSED, RETRY, WALLET, WON, append_if, outcome, race, until_waiting

from postroom.db.pool import Pool, connect
from postroom.events import AppendCondition, Event, EventSession, EventStore, Query
from postroom.events.model import Append

CONDITIONS = {
    "a tag": WALLET,
    "a type and a tag": Query.of("Withdrawn", tags=["wallet=1"]),
    "a type": Query.of("Withdrawn"),
    "types": Query.of("Deposited", "Withdrawn"),
    "everything": Query.all(),
    "an OR": Query.of(tags=["wallet=2"]) | WALLET,
}


@pytest.mark.parametrize("level", LEVELS)
async def test_one_of_two_transactions_with_one_condition_wins(
    opened: Opener, pool: Pool, store: EventStore, level: str
) -> None:
    """For every shape of condition and isolation level, the second append is rejected or must be retried."""
    first, second = await opened(), await opened()
    for query in CONDITIONS.values():
        outcomes = await race(first, second, pool, level, AppendCondition(query, (await store.head()).cursor))
        assert outcomes == [WON, REFUSED if level == "read_committed" else RETRY]
    assert await pool.fetchval("SELECT count(*) FROM events") == len(CONDITIONS)


@pytest.mark.parametrize("level", LEVELS)
async def test_one_of_two_transactions_with_one_idempotency_query_wins(opened: Opener, pool: Pool, level: str) -> None:
    """An append waits for an uncommitted duplicate, at every isolation level."""
    first, second = await opened(), await opened()
    ours, theirs = first.transaction(isolation=level), second.transaction(isolation=level)
    await ours.start()
    await theirs.start()
    await second.fetchval("SELECT 1")
    once, event = Query.of(tags=["wallet=1"]), Event.of("Withdrawn", wallet=1)
    await EventSession(first).append(event, idempotency=once)
    append = asyncio.ensure_future(outcome(EventSession(second).append(event, idempotency=once)))
    await until_waiting(pool, second)
    await ours.commit()
    assert await append == (REFUSED if level == "read_committed" else RETRY)
    await theirs.rollback()


@pytest.mark.parametrize("level", LEVELS[1:])
async def test_conflict_after_an_old_snapshot_is_noticed(opened: Opener, store: EventStore, level: str) -> None:
    """A conflicting event committed after the snapshot is noticed without a lock wait; a retry succeeds."""
    connection = await opened()
    transaction = connection.transaction(isolation=level)
    await transaction.start()
    _, seen = await EventSession(connection).read(WALLET)
    await store.append(Event.of("Withdrawn", wallet=1))
    condition = AppendCondition(WALLET, seen)
    assert await outcome(EventSession(connection).append(Event.of("Withdrawn", wallet=1), condition)) == RETRY
    await transaction.rollback()
    async with connection.transaction(isolation=level):
        _, seen = await EventSession(connection).read(WALLET)
        await EventSession(connection).append(Event.of("Withdrawn", wallet=1), AppendCondition(WALLET, seen))


@pytest.mark.parametrize("form", ["general", "the seed's"])
async def test_racing_clients_never_both_succeed(opened: Opener, pool: Pool, form: str) -> None:
    """If two clients append the same decision at once, exactly one succeeds: 300 rounds."""
    clients = [await opened(), await opened()]

    async def bring(client: asyncpg.Connection, number: int) -> bool:
        if form == "general":
            query = Query.of(tags=[f"round={number}"])
            return (
                await outcome(EventSession(client).append(Event.of("X", round=number), AppendCondition(query))) == WON
            )
        tags = [f"seat={number}"]
        return bool((await append_if(client, tags=tags, condition_tags=tags, after=0))["success"])

    for number in range(300):
        assert sorted(await asyncio.gather(*(bring(client, number) for client in clients))) == [False, True]


async def test_conflict_is_seen_although_our_transaction_id_is_older(opened: Opener, store: EventStore) -> None:
    """An event committed after our transaction id was assigned, but before our append, is a conflict."""
    connection = await opened()
    async with connection.transaction():
        await connection.fetchval("SELECT pg_current_xact_id()")
        session = EventSession(connection)
        _, seen = await session.read(WALLET)
        await store.append(Event.of("Withdrawn", wallet=1))
        assert await outcome(session.append(Event.of("Withdrawn", wallet=1), AppendCondition(WALLET, seen))) == REFUSED
        answer = await append_if(connection, condition_tags=["wallet=1"], after=0)
        assert answer["error_code"] == "DCB_VIOLATION"


@pytest.mark.parametrize("where", ["this database", "another database"])
async def test_conflict_is_seen_while_another_transaction_is_open(
    database_url: str, opened: Opener, store: EventStore, where: str
) -> None:
    """The second of two appends is rejected, although an open transaction elsewhere holds back the horizon."""
    other = database_url.rpartition("/")[0] + "/postgres"
    unrelated = await opened() if where == "this database" else await asyncpg.connect(other)
    transaction = unrelated.transaction()
    await transaction.start()
    await unrelated.fetchval("SELECT pg_current_xact_id()")
    condition = AppendCondition(WALLET, (await store.read(WALLET)).cursor)
    assert await outcome(store.append(Event.of("Withdrawn", wallet=1), condition)) == WON
    assert await outcome(store.append(Event.of("Withdrawn", wallet=1), condition)) == REFUSED
    # A new read is not held back either.
    condition = AppendCondition(WALLET, (await store.read(WALLET)).cursor)
    assert await outcome(store.append(Event.of("Withdrawn", wallet=1), condition)) == WON
    await transaction.rollback()
    await unrelated.close()


async def test_overlapping_queries_conflict(opened: Opener, pool: Pool) -> None:
    """([X], t) against ([X, Y], t): each sees the other's event, uncommitted or committed."""
    first, second = await opened(), await opened()
    narrow, wide = Query.of("X", tags=["wallet=1"]), Query.of("X", "Y", tags=["wallet=1", "bank=2"])
    event = Event("X", {}, ("wallet=1", "bank=2"))
    async with first.transaction():
        await EventSession(first).append(event, AppendCondition(narrow))
        append = asyncio.ensure_future(outcome(EventSession(second).append(event, AppendCondition(wide))))
        await until_waiting(pool, second)
    assert await append == REFUSED


async def test_a_transfer_between_two_wallets_sees_both(opened: Opener, pool: Pool, store: EventStore) -> None:
    """With an OR of two items, an event in either wallet is a conflict, uncommitted or committed."""
    both = Query.of(tags=["wallet=1"]) | Query.of(tags=["wallet=2"])
    for wallet in (1, 2):
        _, seen = await store.read(both)
        rival, ours = await opened(), await opened()
        async with rival.transaction():
            await EventSession(rival).append(Event.of("Withdrawn", wallet=wallet))
            transfer = Event("Transferred", {}, ("wallet=1", "wallet=2"))
            append = asyncio.ensure_future(outcome(EventSession(ours).append(transfer, AppendCondition(both, seen))))
            await until_waiting(pool, ours)
        assert await append == REFUSED


@pytest.mark.parametrize("tags, types", [(["wallet=1"], None), (None, ["X"]), (None, None)])
async def test_append_events_if_checks_every_shape_of_condition(
    pool: Pool, tags: list[str] | None, types: list[str] | None
) -> None:
    """Tags only, types only, match all: an event after the cursor is a conflict, one before it is not."""
    assert (await append_if(pool))["success"]
    refused = await append_if(pool, types=types, condition_tags=tags, after=0)
    assert (refused["success"], refused["error_code"]) == (False, "DCB_VIOLATION")
    assert refused["matched"] == {"position": 1, "type": "X", "tags": ["wallet=1"]}
    assert (await append_if(pool, types=types, condition_tags=tags, after=1))["success"]


async def test_appends_without_conditions_run_concurrently(opened: Opener, pool: Pool) -> None:
    """Twelve transactions append with the same tag and type without waiting for each other."""
    connections = [await opened() for _ in range(12)]
    transactions = [connection.transaction() for connection in connections]
    async with asyncio.timeout(60):
        for connection, transaction in zip(connections, transactions, strict=True):
            await transaction.start()
            await EventSession(connection).append(Event.of("Deposited", wallet=1))
        for transaction in reversed(transactions):
            await transaction.commit()
    assert await pool.fetchval("SELECT count(*) FROM events") == 12


async def test_conditions_on_different_tags_run_concurrently(opened: Opener) -> None:
    """A decision about one wallet does not wait for a decision about another."""
    first, second = await opened(), await opened()
    async with asyncio.timeout(60), first.transaction(), second.transaction():
        for number, connection in enumerate((first, second)):
            condition = AppendCondition(Query.of("Withdrawn", tags=[f"wallet={number}"]))
            assert await EventSession(connection).append(Event.of("Withdrawn", wallet=number), condition)


async def test_seen_event_with_a_higher_position_is_no_conflict(opened: Opener, store: EventStore, pool: Pool) -> None:
    """Once read, an event whose transaction order and position disagree is no conflict."""
    older = await opened()
    async with older.transaction():
        await older.fetchval("SELECT pg_current_xact_id()")
        await store.append(Event.of("Deposited", wallet=1))
        await EventSession(older).append(Event.of("Deposited", wallet=1))
    events, seen = await store.read(WALLET)
    assert [event.position for event in events] == [2, 1]
    await store.append(Event.of("Withdrawn", wallet=1), AppendCondition(WALLET, seen))
    assert (await append_if(pool, condition_tags=["wallet=1"], after=3))["success"]


async def test_lower_position_committed_after_the_read_is_a_conflict(opened: Opener, store: EventStore) -> None:
    """Position 1 is open, 2 is read, 1 commits: the decision has not seen 1 and is rejected, for every query."""
    slow = await opened()
    for query in CONDITIONS.values():
        _, before = await store.read(query)
        async with slow.transaction():
            lower = await EventSession(slow).append(Event.of("Withdrawn", wallet=1))
            higher = await store.append(Event.of("Withdrawn", wallet=1))
            events, seen = await store.read(query, after=before)
            assert [event.position for event in events] == [higher.position]
        assert await outcome(store.append(Event.of("Withdrawn", wallet=1), AppendCondition(query, seen))) == REFUSED
        late, seen = await store.read(query, after=seen)
        assert [event.position for event in late] == [lower.position]
        assert await outcome(store.append(Event.of("Withdrawn", wallet=1), AppendCondition(query, seen))) == WON


async def test_decision_waits_for_an_open_matching_append(opened: Opener, pool: Pool, store: EventStore) -> None:
    """A conditional append waits for an open transaction with a matching event, and then sees the event."""
    rival, ours = await opened(), await opened()
    for query in CONDITIONS.values():
        _, seen = await store.read(query)
        async with rival.transaction():
            await EventSession(rival).append(Event.of("Withdrawn", wallet=1))
            append = asyncio.ensure_future(
                outcome(EventSession(ours).append(Event.of("Y"), AppendCondition(query, seen)))
            )
            await until_waiting(pool, ours)
        assert await append == REFUSED


async def test_the_head_is_safe_as_a_cursor(opened: Opener, store: EventStore) -> None:
    """The cursor of the head excludes open transactions: a lower position that commits later is a conflict."""
    slow = await opened()
    async with slow.transaction():
        await EventSession(slow).append(Event.of("Withdrawn", wallet=1))
        await store.append(Event.of("Deposited", wallet=2))
        head = await store.head()
    assert head.position == 2
    assert await outcome(store.append(Event.of("Withdrawn", wallet=1), AppendCondition(WALLET, head.cursor))) == REFUSED


@pytest.mark.parametrize("function", ["append_events_batch", "append_events_if"])
async def test_append_events_if_keeps_positions_of_one_tag_in_order(opened: Opener, pool: Pool, function: str) -> None:
    """A position is a safe cursor because the next append with the tag waits for the open one."""
    first, second = await opened(), await opened()
    append = f"SELECT postroom.{function}('{{X}}', '{{\"{{wallet=1}}\"}}', ARRAY['{{}}'::jsonb], NULL)"
    async with first.transaction():
        await first.fetchval(append)
        waiting = asyncio.ensure_future(second.fetchval(append))
        await until_waiting(pool, second)
    await waiting
    assert not (await append_if(pool, condition_tags=["wallet=1"], after=1))["success"]


async def test_two_rooms_of_one_database_do_not_wait_for_each_other(database_url: str, opened: Opener) -> None:
    """The room's name is part of every lock key."""
    from postroom.db.migrate import migrate

    await migrate(database_url, "annex")
    ours, theirs = await opened(), await connect(database_url, "annex")
    everything = AppendCondition(Query.all())
    async with asyncio.timeout(60), ours.transaction():
        await EventSession(ours).append(Event.of("X", wallet=1), everything)
        assert await EventSession(theirs).append(Event.of("X", wallet=1), everything)
    await theirs.close()


async def test_many_keys_become_one_lock_on_everything(opened: Opener, pool: Pool) -> None:
    """An append with hundreds of tags takes one lock, and decisions about any of them wait for it."""
    first, second = await opened(), await opened()
    async with first.transaction():
        await EventSession(first).append([Event.of("Imported", wallet=number) for number in range(300)])
        held = await first.fetchval(
            "SELECT array_agg(mode) FROM pg_locks WHERE pid = pg_backend_pid() "
            "AND (locktype = 'advisory' OR relation = 'postroom.event_gate'::regclass)"
        )
        assert held == ["ExclusiveLock"]
        append = asyncio.ensure_future(outcome(EventSession(second).append(Event.of("X"), AppendCondition(WALLET))))
        await until_waiting(pool, second)
    assert await append == REFUSED


async def test_a_refusal_leaves_the_transaction_usable(opened: Opener, pool: Pool) -> None:
    """A conflict does not abort the transaction: the caller's other changes can be committed."""
    connection = await opened()
    session = EventSession(connection)
    async with connection.transaction():
        await session.append(Event.of("X", wallet=1))
        assert await outcome(session.append(Event.of("X", wallet=1), AppendCondition(WALLET))) == REFUSED
        await session.append_whole(Append((Event.of("Y", wallet=1),)))
    assert await pool.fetchval("SELECT array_agg(type ORDER BY position) FROM events") == ["X", "Y"]
