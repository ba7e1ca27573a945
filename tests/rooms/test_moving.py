"""A room moves to another server under load: no delivery is lost, and no mail is sent twice."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest
from tests.conftest import TestServer
from tests.support.forked import run_module
from tests.support.http import Browser, a_key
from tests.support.rooms import execute, fetch_value, servers_with
from tests.support.rooms_process import Orders
from tests.support.smtp_server import Hold, Script, smtp_server
from tests.support.smtp_server import Server as SmtpServer

from postroom.app import run_worker
from postroom.db.room import open_room
from postroom.delivery.model import Lane
from postroom.delivery.service import AcceptCombiner
from postroom.delivery.store import claim_due
from postroom.errors import BadInput
from postroom.http.asgi import build_app
from postroom.http.auth import Authenticator
from postroom.http.open_rooms import OpenRooms, ServedRoom
from postroom.http.rooms_app import RoomsApplication
from postroom.rooms.address import RoomAddress
from postroom.rooms.errors import MoveUnfinished, RoomExists, RoomNotFound, ServerUnknown
from postroom.rooms.model import RoomState
from postroom.rooms.moving import move_room, undo_move
from postroom.rooms.service import Server, find_rooms, open_servers
from postroom.settings import Settings

ACTOR = "cli:tests"
ROOM = "tenant_a"
BEFORE_COMMIT = ("fenced", "drained", "closed", "dumped", "begun", "restored", "migrated", "copied")
AFTER_COMMIT = ("moved", "opened")
SEND = f"SELECT {ROOM}.send('{{ada@example.org}}', p_subject => $1::text, p_text => 'Hi')"
CLOSED = f"""The room {ROOM} is moving from a to b. It refuses writes: nothing was stored, retry later.
HINT:  If no command is moving the room now, run "postroom rooms move {ROOM} --to b" to continue, or "postroom rooms \
move {ROOM} --undo"."""
MOVED = f"""The room {ROOM} is moved from a to b. It refuses writes: nothing was stored, retry later.
HINT:  Use the room on server b."""
UNLOCKED = f"SELECT pg_try_advisory_lock(hashtextextended('postroom:move:{ROOM}', 0))"


class Caller:
    """An application that sends by SQL to both servers, and remembers which mails were accepted, and where."""

    def __init__(self, settings: Settings) -> None:
        self._urls = dict(settings.servers)
        self.accepted: list[tuple[str, str]] = []
        self.refusals: set[str] = set()
        self._count = 0

    async def send(self, place: str) -> bool:
        """Send one mail; False if the room refuses it for the moment, or is not there."""
        self._count += 1
        subject = f"mail {self._count}"
        try:
            await fetch_value(self._urls[place], SEND, subject)
        except asyncpg.ReadOnlySQLTransactionError as error:
            self.refusals.add(str(error))
            return False
        except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError):
            return False
        self.accepted.append((subject, place))
        return True

    async def send_some(self, place: str) -> None:
        for _ in range(5):
            await self.send(place)


@asynccontextmanager
async def working(settings: Settings, place: str, server: SmtpServer) -> AsyncIterator[None]:
    """A worker of the room on one server during the block."""
    url = dict(settings.servers)[place]
    relay = f"smtp://127.0.0.1:{server.port}?tls=none"
    chosen = Settings(database_url=url, schema=ROOM, transport="smtp", smtp_relay=relay)
    stop = asyncio.Event()
    async with open_room(chosen) as room:
        task = asyncio.create_task(run_worker(room, stop=stop))
        try:
            yield
        finally:
            stop.set()
            await task


async def killed_at(settings: Settings, step: str) -> None:
    """Run the move in a process that dies at this step, and wait until its lock is free."""
    orders = Orders(settings.servers, ROOM, "b", die_at=step)
    code, _ = await run_module("tests.support.rooms_process", orders.encode())
    assert code == -signal.SIGKILL, step
    async with asyncio.timeout(60):
        while not await fetch_value(settings.servers[0][1], UNLOCKED):
            pass


async def states(servers: Sequence[Server]) -> dict[str, RoomState]:
    return {room.server: room.state for room in (await find_rooms(servers, ROOM)).rooms}


def subjects(server: SmtpServer) -> Counter[str]:
    lines = [line for message in server.messages for line in message.content.split(b"\r\n")]
    return Counter(line.removeprefix(b"Subject: ").decode() for line in lines if line.startswith(b"Subject: "))


async def test_a_move_killed_at_each_step_loses_and_repeats_nothing(server: TestServer) -> None:
    """Never do both servers accept mail; the last run finishes, and every accepted mail was sent exactly once."""
    async with servers_with(server, ROOM, "other", working=True) as settings, smtp_server() as smtp:
        caller = Caller(settings)
        async with working(settings, "a", smtp), open_servers(settings) as servers:
            await caller.send_some("a")
            for step in BEFORE_COMMIT:
                await asyncio.gather(killed_at(settings, step), caller.send_some("a"))
                assert not await caller.send("b"), step
                assert (await states(servers))["a"] is RoomState.MOVING, step
            assert not await caller.send("a")
            archive_id = await fetch_value(settings.servers[0][1], f"SELECT id FROM {ROOM}.archive_room")
        for step in AFTER_COMMIT:
            await killed_at(settings, step)
            assert not await caller.send("a"), step
        async with open_servers(settings) as servers:
            assert await states(servers) == {"a": RoomState.MOVED, "b": RoomState.READY}
            assert await move_room(servers, ROOM, to="b", actor=ACTOR) is not None
            assert await states(servers) == {"b": RoomState.READY}
            assert await move_room(servers, ROOM, to="b", actor=ACTOR) is None
        await caller.send_some("b")
        async with working(settings, "b", smtp):
            await _sent(settings, len(caller.accepted))
        assert await fetch_value(settings.servers[1][1], f"SELECT id FROM {ROOM}.archive_room") == archive_id
    assert {place for _, place in caller.accepted} == {"a", "b"}
    assert caller.refusals == {CLOSED, MOVED}
    assert subjects(smtp) == Counter(subject for subject, _ in caller.accepted)


async def _sent(settings: Settings, count: int) -> None:
    """Wait until this many deliveries of the moved room are sent."""
    connection = await asyncpg.connect(settings.servers[1][1])
    try:
        async with asyncio.timeout(60):
            query = f"SELECT count(*) FROM {ROOM}.deliveries WHERE state = 'sent'"
            while await connection.fetchval(query) < count:
                pass
    finally:
        await connection.close()


async def test_a_move_waits_for_running_attempts(server: TestServer) -> None:
    """The room accepts mail until the attempt has ended; then it is closed and copied."""
    hold = Hold()
    async with (
        servers_with(server, ROOM, "other", working=True) as settings,
        smtp_server(Script(says={".": [hold]})) as smtp,
        open_servers(settings) as servers,
    ):
        caller = Caller(settings)
        await execute(settings.servers[0][1], f"GRANT USAGE ON SCHEMA {ROOM} TO pg_monitor")
        async with working(settings, "a", smtp):
            await caller.send("a")
            await hold.reached.wait()
            fenced = asyncio.Event()
            steps: list[str] = []

            def heard(step: str) -> None:
                steps.append(step)
                fenced.set()

            moving = asyncio.create_task(move_room(servers, ROOM, to="b", actor=ACTOR, keep=True, signal=heard))
            await fenced.wait()
            assert await caller.send("a")
            assert steps == ["fenced"]
            with pytest.raises(MoveUnfinished, match="Another command"):
                await move_room(servers, ROOM, to="b", actor=ACTOR)
            hold.go.set()
            moved = await moving
        assert moved is not None
        assert moved.roles == ("pg_monitor",)
        assert await states(servers) == {"a": RoomState.MOVED, "b": RoomState.READY}
        async with working(settings, "b", smtp):
            await _sent(settings, 2)
        url = settings.servers[1][1]
        assert await fetch_value(url, f"SELECT action FROM {ROOM}.audit_log ORDER BY id DESC LIMIT 1") == "room.move"
    assert subjects(smtp) == Counter(subject for subject, _ in caller.accepted)


async def claim_and_die(settings: Settings) -> None:
    """A worker claims the mail, and ends before it starts an attempt."""
    async with (
        open_room(Settings(database_url=settings.servers[0][1], schema=ROOM)) as room,
        room.pool.acquire() as one,
    ):
        claimed = await claim_due(
            one,
            lane=Lane.TRANSACTIONAL,
            batch_limit=1,
            worker_id=0,
            lease=timedelta(0),
            now=None,
            use_senders=False,
            webhook_limit=1,
            byte_limit=1000,
            busy_accounts=[],
        )
    assert len(claimed) == 1


async def test_a_move_is_undone_before_its_commit(server: TestServer) -> None:
    """After a kill by command, after a failure at once; the origin accepts mail and has no trace of the move.

    The claim of a dead worker does not hold it up: its lease is recovered.
    """
    async with servers_with(server, ROOM, "other", working=True) as settings, open_servers(settings) as servers:
        caller = Caller(settings)
        await caller.send("a")
        await claim_and_die(settings)
        await killed_at(settings, "copied")
        assert await fetch_value(settings.servers[0][1], f"SELECT state FROM {ROOM}.deliveries") == "queued"
        with pytest.raises(MoveUnfinished, match="--undo"):
            await move_room([*servers, replace(servers[1], name="c")], ROOM, to="c", actor=ACTOR)
        assert await undo_move(servers, ROOM, actor=ACTOR) == "a"
        assert await states(servers) == {"a": RoomState.READY}
        assert await caller.send("a")

        def failing(step: str) -> None:
            if step == "dumped":
                raise OSError(step)

        with pytest.raises(OSError, match="dumped"):
            await move_room(servers, ROOM, to="b", actor=ACTOR, signal=failing)
        assert await states(servers) == {"a": RoomState.READY}
        assert await caller.send("a")
        fences = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'moving%'"
        assert await fetch_value(settings.servers[0][1], fences) == 0
        with pytest.raises(RoomNotFound, match="no unfinished move"):
            await undo_move(servers, ROOM, actor=ACTOR)


async def test_a_move_killed_at_each_step_can_be_undone(server: TestServer) -> None:
    """Before the commit the origin accepts mail and claims again, and no copy is left; after it, the error says so."""
    async with servers_with(server, ROOM, "other", working=True) as settings, open_servers(settings) as servers:
        caller = Caller(settings)
        for step in BEFORE_COMMIT:
            await killed_at(settings, step)
            assert await undo_move(servers, ROOM, actor=ACTOR) == "a"
            assert await states(servers) == {"a": RoomState.READY}, step
            assert await caller.send("a"), step
            await claim_and_die(settings)
        for step in AFTER_COMMIT:
            await killed_at(settings, step)
            with pytest.raises(MoveUnfinished, match="on 'b' already; run the same move again"):
                await undo_move(servers, ROOM, actor=ACTOR)


async def test_the_api_names_the_commands_that_end_a_killed_move(server: TestServer) -> None:
    """A process that serves the closed room answers 503 with the hint, and so does one that finds it later."""
    async with servers_with(server, ROOM, "other", working=True) as settings, open_servers(settings) as servers:
        async with open_room(servers[0].settings_of(ROOM)) as room:
            browser = Browser(build_app(room), (await a_key(room, "tests", "*"))[0])
            await killed_at(settings, "closed")
            mail = {"to": "ada@example.org", "subject": "Hello", "text": "Hi"}
            answers = [await browser.post("/v1/deliveries", json=mail)]
        served = ServedRoom(build_app(room), Authenticator(room.pool), AcceptCombiner(room.pool))
        rooms = OpenRooms(servers, ROOM, lambda _server, _name: nullcontext(served))
        app = RoomsApplication(rooms, RoomAddress("https://mail.example.org"), home=ROOM)
        answers.append(await Browser(app).get(f"/rooms/{ROOM}/v1/deliveries"))
    for answer in answers:
        assert (answer.status, answer.json["code"]) == (503, "room_not_ready")
        assert '"postroom rooms move tenant_a --to b" to continue' in answer.json["detail"]
        assert '"postroom rooms move tenant_a --undo"' in answer.json["detail"]


async def test_what_cannot_move_is_refused(server: TestServer) -> None:
    """Nothing changes for an unknown server, an unknown room, a pattern, or a room that is on both servers."""
    async with servers_with(server, ROOM, ROOM) as settings, open_servers(settings) as servers:
        with pytest.raises(ServerUnknown):
            await move_room(servers, ROOM, to="c", actor=ACTOR)
        with pytest.raises(RoomNotFound):
            await move_room(servers, "tenant_x", to="b", actor=ACTOR)
        with pytest.raises(BadInput):
            await move_room(servers, "tenant_*", to="b", actor=ACTOR)
        with pytest.raises(RoomExists, match="duplicate on a, duplicate on b"):
            await move_room(servers, ROOM, to="b", actor=ACTOR)
        assert set((await states(servers)).values()) == {RoomState.DUPLICATE}
