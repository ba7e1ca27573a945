"""A worker of many rooms: they sleep without work, wake for any, take turns, and come and go while it runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg
import pytest
from tests.conftest import TestServer, postgres_major
from tests.support.builders import Steps
from tests.support.command_line import outcome
from tests.support.outbox import until
from tests.support.rooms import execute, fetch_value, servers_with

from postroom.app import run_fleet
from postroom.db.migrate import migrate
from postroom.db.room import Room
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.rooms.fleet import Fleet
from postroom.rooms.model import FleetOptions, Watcher
from postroom.rooms.server_rooms import ServerRooms
from postroom.rooms.service import find_rooms, open_servers
from postroom.rooms.wake import Member, RoomWake
from postroom.settings import Settings

NEVER = timedelta(hours=1)
PATIENCE_S = 60
WATCHER = Watcher(pid=1, host="tests", collects_tokens=True, publishers=("log",))
SEND = "SELECT {}.send('{{ada@example.org}}', p_subject => 'Hi', p_text => 'Hi')"
DELTA = (
    "INSERT INTO {}.stat_deltas (hour, campaign_id, sender_account_id, amount, domain, metric)"
    " VALUES (now(), 0, 0, 1, 'example.org', 'opened')"
)
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
NOTIFY_LANE = "NOTIFY tenant_a_deliveries, 'transactional'"
DELIVERED = "DELETE FROM {0}.deliveries; DELETE FROM {0}.delivery_steps"


class Worked:
    """Stands for the loops of a worker: records the rooms that it serves, and ends when asked."""

    def __init__(self) -> None:
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.wakes: list[RoomWake] = []

    async def __call__(self, room: Room, *, stop: asyncio.Event, wake: RoomWake) -> None:
        self.wakes.append(wake)
        self.began.put_nowait(room.name)
        await stop.wait()
        self.ended.put_nowait(room.name)


@asynccontextmanager
async def running(
    settings: Settings, worked: Worked, *, steps: Steps | None = None, **options: Any
) -> AsyncIterator[Fleet]:
    """A fleet that looks at a room only after a notification, unless the options say otherwise."""
    chosen: dict[str, Any] = {"check": NEVER, "discovery": NEVER, "look": timedelta(milliseconds=1), **options}
    async with open_servers(settings) as servers:
        fleet = Fleet(
            servers,
            "tenant_*",
            run_room=worked,
            watcher=WATCHER,
            options=FleetOptions(**chosen),
            signal=steps or Steps(),
        )
        stop = asyncio.Event()
        task = asyncio.create_task(fleet.run(stop))
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield fleet
        finally:
            stop.set()
            await task


async def test_a_mail_wakes_its_room_and_no_other(server: TestServer) -> None:
    """`send` notifies the process in which the room sleeps; the room sleeps again when nothing is left."""
    async with servers_with(server, "tenant_a", "tenant_b", working=True) as settings:
        worked, steps, url = Worked(), Steps(), dict(settings.servers)["a"]
        async with running(settings, worked, steps=steps):
            for name in ("tenant_a", "tenant_b"):
                await steps.reached(f"asleep {name}")
            await execute(url, SEND.format("tenant_a"))
            assert await worked.began.get() == "tenant_a"
            await execute(url, DELIVERED.format("tenant_a"))
            assert await worked.ended.get() == "tenant_a"
            assert worked.began.empty()
        assert await fetch_value(url, "SELECT count(*) FROM tenant_a.workers") == 0


async def test_sleeping_rooms_share_a_few_connections(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One to listen, one to check, one that follows the primary; the session of the checks ends after some rooms.

    Otherwise the server would keep the catalog entries of all rooms in that session: 570 MB for 333 rooms.
    """
    monkeypatch.setattr("postroom.rooms.server_rooms.CHECKED_ROOMS", 2)
    names = [f"tenant_{letter}" for letter in "abcd"]
    async with servers_with(server, names[0], working=True) as settings:
        [(_, url)], steps = settings.servers, Steps()
        for name in names[1:]:
            await migrate(url, name)
        async with running(settings, Worked(), steps=steps) as fleet:
            for name in names:
                await steps.reached(f"asleep {name}", times=2)
            assert await fetch_value(url, CONNECTIONS) <= 3
            checks = fleet._members[0]._checks
            assert checks is not None
            kept = [holder._con for holder in checks._holders if holder._con is not None]
            assert [len(each.seen) for each in kept if not each.is_closed() and len(each.seen) > 2] == []


async def test_a_room_without_a_notification_is_found_by_a_check(server: TestServer) -> None:
    """Work that is written by plain SQL notifies no process; the next check of the room finds it."""
    async with servers_with(server, "tenant_a", working=True) as settings:
        worked, steps, [(_, url)] = Worked(), Steps(), settings.servers
        async with running(settings, worked, steps=steps, check=timedelta(milliseconds=100)):
            await steps.reached("asleep tenant_a")
            await execute(url, DELTA.format("tenant_a"))
            assert await worked.began.get() == "tenant_a"


async def test_work_that_appears_during_a_check_is_found(server: TestServer) -> None:
    """The check does not see it, and its result does not hide the notification that came meanwhile."""
    async with servers_with(server, "tenant_a", working=True) as settings:
        worked, steps, [(_, url)] = Worked(), Steps(), settings.servers
        async with running(settings, worked, steps=steps) as fleet:
            await steps.reached("asleep tenant_a", times=2)
            [member] = fleet._members[0]._members.values()
            blocker = await asyncpg.connect(url)
            async with blocker.transaction():  # the check reads this table last, after its snapshot
                await blocker.execute("LOCK TABLE tenant_a.outbox_topic_progress IN ACCESS EXCLUSIVE MODE")
                await until(lambda: _waits_after_notification(url))
                await execute(url, DELTA.format("tenant_a"))
                await until(lambda: _has_notified(url, "NOTIFY tenant_a_tokens", lambda: member.check_at == 0))
            await blocker.close()
            assert await worked.began.get() == "tenant_a"


async def _waits_after_notification(url: str) -> bool:
    await execute(url, "NOTIFY tenant_a_tokens")
    return bool(await fetch_value(url, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))


async def test_a_mail_starts_its_lane_and_other_loops_begin_with_work(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A room that wakes for a mail runs no loop without work; a look finds the loops that have some."""
    async with servers_with(server, "tenant_a", working=True) as settings:
        worked, steps, [(_, url)] = Worked(), Steps(), settings.servers
        async with running(settings, worked, steps=steps):
            await steps.reached("asleep tenant_a")
            checked = asyncio.Event()

            async def let_sleep(_rooms: ServerRooms, members: list[Member]) -> None:
                """In place of checks, one of which could find the mail before its notification."""
                for member in members:
                    member.check_at = member.renew_at = monotonic() + NEVER.total_seconds()
                checked.set()

            monkeypatch.setattr(ServerRooms, "_check", let_sleep)
            await until(lambda: _has_notified(url, "NOTIFY tenant_a_tokens", checked.is_set))
            await execute(url, SEND.format("tenant_a"))
            await until(lambda: _has_notified(url, NOTIFY_LANE, lambda: bool(worked.wakes)))
            [wake] = worked.wakes
            assert wake.lanes == {"transactional"}
            await execute(url, DELIVERED.format("tenant_a") + "; " + DELTA.format("tenant_a"))
            await wake.gates.of("next_rollup_at").wait()
            assert not wake.gates.of("next_token_at").is_set()
            await execute(url, "NOTIFY tenant_a_tokens")
            await wake.gates.of("next_token_at").wait()


async def _has_notified(url: str, statement: str, is_done: Callable[[], bool]) -> bool:
    """Notify the process, which may not listen yet."""
    await execute(url, statement)
    return is_done()


async def test_a_worker_takes_over_the_registration_of_its_sleeping_room(server: TestServer) -> None:
    """Accepting goes on notifying one worker; a second registration would cost each acceptance a notification."""
    async with servers_with(server, "tenant_a", working=True) as settings:
        worked, steps, [(_, url)] = Worked(), Steps(), settings.servers
        async with running(settings, worked, steps=steps):
            await steps.reached("asleep tenant_a")
            await execute(url, SEND.format("tenant_a"))
            await worked.began.get()
            assert await fetch_value(url, "SELECT array_agg(id) FROM tenant_a.workers") == [worked.wakes[0].worker_id]


async def test_rooms_come_and_go(server: TestServer) -> None:
    """A new room joins without a restart; a room that is being moved or was dropped stops at once."""
    async with servers_with(server, "tenant_a", working=True) as settings, open_servers(settings) as servers:
        worked, steps, [(_, url)] = Worked(), Steps(), settings.servers
        async with running(settings, worked, steps=steps) as fleet:
            await steps.reached("asleep tenant_a")
            await migrate(url, "tenant_b")
            await fleet.discover()
            await steps.reached("asleep tenant_b")
            await execute(url, SEND.format("tenant_a"))
            assert await worked.began.get() == "tenant_a"
            await execute(url, "SET search_path = tenant_a; SELECT begin_move('moving from a to b')")
            await fleet.discover()
            assert await worked.ended.get() == "tenant_a"
            await execute(url, "DROP SCHEMA tenant_b CASCADE")
            await fleet.discover()
            assert not (await find_rooms(servers, "tenant_*")).ready


async def test_rooms_take_turns(server: TestServer) -> None:
    """With one place, a room whose turn is over gives way, although it has more work."""
    async with servers_with(server, "tenant_a", working=True) as settings:
        [(_, url)] = settings.servers
        await migrate(url, "tenant_b")
        for name in ("tenant_a", "tenant_b"):
            await execute(url, SEND.format(name))
        worked = Worked()
        async with running(settings, worked, awake=1, turn=timedelta()):
            order = [await worked.began.get() for _ in range(4)]
        assert order[:2] == order[2:]
        assert set(order) == {"tenant_a", "tenant_b"}


async def test_an_error_of_one_room_stops_no_other(server: TestServer) -> None:
    """A room that lacks a migration is not served, and the others are."""
    async with servers_with(server, "tenant_a", working=True) as settings:
        [(_, url)] = settings.servers
        await migrate(url, "tenant_b")
        await execute(
            url, "DROP FUNCTION tenant_a.next_work_at; DELETE FROM tenant_a.migrations WHERE name ~ 'next_work'"
        )
        await execute(url, SEND.format("tenant_b"))
        worked = Worked()
        async with running(settings, worked):
            assert await worked.began.get() == "tenant_b"


async def test_a_server_that_is_down_stops_no_other(server: TestServer, tmp_path: Path) -> None:
    """The rooms of the other server are served; those of the stopped one again when it is back."""
    async with servers_with(server, "tenant_a", working=True) as settings:
        other = EmbeddedServer(tmp_path / "other", ServerOptions(fsync=False, major=postgres_major()))
        url, here = await other.start(), settings.servers[0][1]
        await migrate(url, "tenant_b")
        worked, steps = Worked(), Steps()
        try:
            async with running(Settings(servers=(("a", here), ("b", url))), worked, steps=steps) as fleet:
                await steps.reached("asleep tenant_b")
                await other.stop()
                await fleet.discover()
                await execute(here, SEND.format("tenant_a"))
                assert await worked.began.get() == "tenant_a"
                assert await other.start() == url
                await execute(url, SEND.format("tenant_b"))
                assert await worked.began.get() == "tenant_b"
        finally:
            await other.stop()


async def test_a_mail_of_a_sleeping_room_is_sent(server: TestServer) -> None:
    """With the loops of the product: the mail is in the room's inbox, and the process ends when asked."""
    async with servers_with(server, "tenant_a", working=True) as found:
        [(_, url)] = found.servers
        settings, stop = replace(found, transport="capture"), asyncio.Event()
        task = asyncio.create_task(run_fleet(settings, "tenant_*", stop=stop, ready=lambda: None))
        try:
            await until(lambda: counts(url, "tenant_a.workers", 1))
            await execute(url, SEND.format("tenant_a"))
            await until(lambda: counts(url, "tenant_a.inbox_messages", 1))
        finally:
            stop.set()
            await task
        assert await counts(url, "tenant_a.workers", 0)


async def counts(url: str, table: str, number: int) -> bool:
    return bool(await fetch_value(url, f"SELECT count(*) = $1 FROM {table}", number))


async def test_rooms_are_not_worked_until_empty() -> None:
    """`--until-empty` and `--migrate` are about one room."""
    code, _, errors = await outcome("work", "--rooms", "tenant_*", "--until-empty")
    assert code == 2
    assert "cannot be used with --until-empty or --migrate" in " ".join(errors.split())
