"""Followers: nothing skipped or repeated, notified only while asleep; and rooms restored elsewhere."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.conftest import postgres_major
from tests.events.conftest import Opener
from tests.support.builders import a_checked_mail
from tests.support.events import REFUSED, WALLET, WON, append_if, outcome, seen_up_to, until_waiting

from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.delivery.service import accept
from postroom.embedded.binaries import find_binaries
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.events import AppendCondition, Cursor, Event, EventSession, EventStore, Place, Query
from postroom.events import store as statements
from postroom.events.service import adopt_restored_events

WRITERS, EACH = 8, 60


async def write(connection: asyncpg.Connection, writer: int) -> None:
    """Append in transactions of one to three, some rolled back, which overlap with those of other writers."""
    for number in range(EACH):
        transaction = connection.transaction()
        await transaction.start()
        for _ in range(1 + number % 3):
            await EventSession(connection).append(Event.of("X", {"w": writer, "n": number}, wallet=writer % 2))
        await (transaction.rollback() if number % 10 == 9 else transaction.commit())


@pytest.mark.parametrize("query", [Query.all(), Query.of("X"), WALLET | Query.of(tags=["wallet=0"])])
async def test_a_follower_skips_nothing_while_eight_write(opened: Opener, store: EventStore, query: Query) -> None:
    """Every committed event arrives exactly once, in the order (transaction, position), page by page."""
    writers = [asyncio.ensure_future(write(await opened(), writer)) for writer in range(WRITERS)]
    seen: list[Place] = []
    cursor: Cursor | None = None
    is_over = False
    while not is_over:
        is_over = all(writer.done() for writer in writers)
        page = True
        while page:
            events, cursor = await store.follow(query, after=cursor, limit=7)
            seen += [event.place for event in events]
            page = bool(events)
    await asyncio.gather(*writers)
    assert seen == sorted(set(seen))
    assert len(seen) == WRITERS * sum(1 + number % 3 for number in range(EACH) if number % 10 != 9)


async def test_a_follower_waits_for_an_older_transaction(opened: Opener, store: EventStore) -> None:
    """An event after an open transaction is hidden until that one ends; then both arrive in order."""
    slow = await opened()
    async with slow.transaction():
        await EventSession(slow).append(Event.of("Slow"))
        await store.append(Event.of("Fast"))
        assert (await store.follow(Query.all())).events == []
    assert [event.type for event in (await store.follow(Query.all())).events] == ["Slow", "Fast"]


async def test_only_sleeping_followers_are_notified(opened: Opener, store: EventStore, pool: Pool) -> None:
    """An append sends one notification per transaction while a follower sleeps; none if all are awake or long dead."""
    listener, heard = await opened(), asyncio.Event()
    notifications: list[object] = []

    def hear(*notification: object) -> None:
        notifications.append(notification)
        heard.set()

    await listener.add_listener("postroom_events", hear)
    follower = await statements.register_follower(pool, name="test")
    await store.append(Event.of("X"))
    await statements.set_follower_asleep(pool, id=follower, is_asleep=True)
    async with pool.acquire() as connection, connection.transaction():
        await store.append(Event.of("X"), connection=connection)
        await store.append(Event.of("X"), connection=connection)
    async with asyncio.timeout(60):
        await heard.wait()
    await statements.forget_follower(pool, id=follower)
    await store.append(Event.of("X"))
    await statements.register_follower(pool, name="dead")
    await pool.execute("UPDATE event_followers SET is_asleep = true, seen_at = now() - interval '8 days'")
    await store.append(Event.of("X"))
    await listener.fetchval("SELECT 1")  # all earlier notifications arrive before this reply
    assert len(notifications) == 1


async def test_dead_followers_are_deleted(pool: Pool) -> None:
    """Falling asleep deletes followers not seen for a day; one that is alive registers again."""
    ours, dead, quiet = [await statements.register_follower(pool, name="test") for _ in range(3)]
    await pool.execute(
        "UPDATE event_followers SET is_asleep = true, seen_at = now() - interval '2 days' WHERE id = $1", dead
    )
    await statements.set_follower_asleep(pool, id=quiet, is_asleep=False)
    assert await pool.fetchval("SELECT count(*) FROM event_followers") == 3
    assert await statements.set_follower_asleep(pool, id=ours, is_asleep=True) == 1
    assert await pool.fetchval("SELECT array_agg(id ORDER BY id) FROM event_followers") == [ours, quiet]
    assert await statements.set_follower_asleep(pool, id=dead, is_asleep=True) == 0


def run(program: str, *arguments: str, feed: bytes = b"") -> bytes:
    """Run a program of PostgreSQL without Postroom's environment."""
    command = [str(find_binaries(postgres_major()).tool(program)), *arguments]
    done = subprocess.run(command, input=feed, capture_output=True, check=False, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


async def grow_old(connection: asyncpg.Connection) -> None:
    """Use up transaction ids, so that this cluster is ahead of a new one."""
    await connection.execute("CREATE PROCEDURE spend() LANGUAGE plpgsql AS "
        "$$ BEGIN FOR i IN 1..3000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")  # fmt: skip
    await connection.execute("CALL spend()")
    await connection.execute("DROP PROCEDURE spend()")


@asynccontextmanager
async def restored_elsewhere(database_url: str, directory: Path) -> AsyncIterator[Pool]:
    """The room, dumped and restored without `postroom backup` into a new cluster, and migrated there."""
    dump = run("pg_dump", "--no-owner", "--no-privileges", database_url)
    async with EmbeddedServer(directory / "younger", ServerOptions(fsync=False, major=postgres_major())) as younger:
        run("psql", "--quiet", "--set=ON_ERROR_STOP=1", younger.url, feed=dump)
        await migrate(younger.url, "postroom")
        async with await open_pool(younger.url, "postroom") as pool:
            yield pool


async def append_if_after(pool: Pool, cursor: str) -> dict[str, Any]:
    """Append if the wallet has no event after this cursor, without the checks of the store."""
    condition = msgspec.json.encode({"query": WALLET.items, "after": cursor}).decode()
    append = "SELECT append_events('{X}', '{\"{wallet=1}\"}', ARRAY['{}'::jsonb], $1::text::jsonb)::text"
    answer: dict[str, Any] = msgspec.json.decode(await pool.fetchval(append, condition))
    return answer


async def test_room_restored_into_a_younger_cluster_continues(
    database_url: str, opened: Opener, store: EventStore, tmp_path: Path
) -> None:
    """Restored events are visible, cause conflicts and come first; followers and decisions continue."""
    connection = await opened()
    for number in range(3):
        await store.append(Event.of("X", {"n": number}, wallet=1))
    await grow_old(connection)
    for number in range(3, 6):
        await store.append(Event.of("X", {"n": number}, wallet=1))
    [*_, progress], followed = await store.follow(WALLET, limit=4)
    decided = (await store.read(WALLET)).cursor

    async with restored_elsewhere(database_url, tmp_path) as pool:
        restored = EventStore(pool)
        assert not (await append_if(pool, condition_tags=["wallet=1"], after=5))["success"]
        assert (await append_if(pool, condition_tags=["wallet=1"], after=6))["success"]
        assert not (await append_if(pool, condition_tags=["wallet=1"], after=6))["success"]
        assert [event.position for event in (await restored.read(WALLET)).events] == [1, 2, 3, 4, 5, 6, 7]
        assert [event.position for event in (await restored.follow(WALLET, after=followed)).events] == [5, 6]
        rest = await restored.follow(WALLET, after=seen_up_to(progress.place))
        assert [event.position for event in rest.events] == [5, 6, 7]
        assert await outcome(restored.append(Event.of("X", wallet=1), AppendCondition(WALLET, decided))) == REFUSED
        [new], cursor = await restored.read(WALLET, after=decided)
        assert new.position == 7
        assert await outcome(restored.append(Event.of("X", wallet=1), AppendCondition(WALLET, cursor))) == WON
        assert not await adopt_restored_events(pool)


async def test_restored_room_continues_after_an_old_last_event(
    database_url: str, opened: Opener, store: EventStore, tmp_path: Path
) -> None:
    """If progress and cursors were ahead of all events, they still see the new events of the younger cluster."""
    connection = await opened()
    await store.append(Event.of("X", wallet=1))
    await connection.execute("UPDATE events SET transaction_id = '500'")
    await connection.execute("UPDATE event_tags SET transaction_id = '500'")
    await grow_old(connection)
    await connection.execute("INSERT INTO outbox_topics (name) VALUES ('all')")
    end = await connection.fetchval(
        "INSERT INTO outbox_topic_progress (topic, publisher, last_transaction_id)"
        " VALUES ('all', 'log', event_horizon()) RETURNING last_transaction_id"
    )
    decided = (await store.read(WALLET)).cursor

    async with restored_elsewhere(database_url, tmp_path) as pool:
        assert (await append_if(pool))["success"]
        rest = await EventStore(pool).follow(WALLET, after=seen_up_to(Place(end, 0)))
        assert [event.position for event in rest.events] == [2]
        refused = await append_if_after(pool, str(decided))
        assert (refused["success"], refused["matched"]["position"]) == (False, 2)


async def test_restore_is_detected_without_the_cluster_identifier(pool: Pool, store: EventStore) -> None:
    """If the role may not read the cluster identifier, an event above all transaction ids shows the restore."""
    await pool.execute("UPDATE event_clock SET system_identifier = NULL")
    assert (await store.append(Event.of("X", wallet=1))).transaction_id >> 48 == 0
    await pool.execute("UPDATE events SET transaction_id = '1000000000'")
    assert (await append_if(pool))["transaction_id"] >> 48 == 1


async def test_a_forced_epoch_waits_for_mail_that_is_being_accepted(pool: Pool, opened: Opener) -> None:
    """The step of the mail has an id of the old epoch, and must not come after a cursor of the new one."""
    slow = await opened()
    async with slow.transaction():
        await accept(slow, a_checked_mail())
        adopting = asyncio.ensure_future(adopt_restored_events(pool, force=True))
        await until_waiting(await opened(), None)
    assert await adopting
    assert await pool.fetchval("SELECT transaction_id::text::bigint >> 48 FROM all_steps") == 0


async def test_new_epoch_can_be_forced(store: EventStore, pool: Pool, opened: Opener) -> None:
    """After a point-in-time recovery: it waits for open appends, and later events come after the old ones."""
    slow = await opened()
    async with slow.transaction():
        await EventSession(slow).append(Event.of("X", wallet=1))
        adopting = asyncio.ensure_future(adopt_restored_events(pool, force=True))
        await until_waiting(await opened(), None)
    assert await adopting
    _, seen = await store.read(WALLET)
    later = await store.append(Event.of("X", wallet=1), AppendCondition(WALLET, seen))
    assert later.transaction_id >> 48 == 1
    async with slow.transaction():
        session = EventSession(slow)
        await session.append(Event.of("X", wallet=1))
        events, seen = await session.read(WALLET)
        assert [event.position for event in events] == [1, 2, 3]
        assert await outcome(session.append(Event.of("X", wallet=1), AppendCondition(WALLET, seen))) == WON
    assert [event.position for event in (await store.follow(WALLET)).events] == [1, 2, 3, 4]
