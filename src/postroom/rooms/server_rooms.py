"""The rooms of one server in a worker process: most of them sleep.

A sleeping room has no loops and no connection. The process listens to its channels on a connection that all rooms of
the server share, and is registered in its table of workers, so that accepting a mail notifies it. When a room falls
asleep the process asks it when it has work next, and asks again at that time. For work that sends no notification,
every `check` reads how many rows were written to the tables of all rooms, by one statement that touches none of them,
and asks the rooms in which that number has changed. A room with work gets the loops of an ordinary worker until it has
been idle for a while.

All rooms of the server share one pool. At most `awake` rooms are awake at the same time; others wait, the oldest first,
and a room that was awake for `turn` gives way to them. Loops that only keep a room in order run once per `upkeep`.
"""

import asyncio
import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from math import inf
from time import monotonic
from typing import Any

import asyncpg
import structlog

from postroom.db.faults import INTERRUPTIONS, is_passing
from postroom.db.listen import Listener
from postroom.db.migrate import RELEASE, check_migrated
from postroom.db.pool import Pool
from postroom.db.primary import primary_followed
from postroom.db.room import Room
from postroom.db.shared_pool import SharedPool, open_shared_pool
from postroom.rooms import store
from postroom.rooms.metrics import SERVED_ROOMS
from postroom.rooms.model import FleetOptions, Watched, Watcher
from postroom.rooms.service import Server
from postroom.rooms.wake import Gates, Member, RoomWake, RunRoom
from postroom.runtime.loop import LONGEST_PAUSE_S, Loop, Signal, run_loops, unheard, wait_for_any

CHANNELS = ("deliveries", "campaigns", "tokens", "events", "outbox")
CHUNK = 20  # rooms of one check: it locks about 40 tables and indexes of each, and the server's lock table is limited
CHECKED_ROOMS = 100  # before the connection of the checks is replaced; few enough for 150 MB of the server
AGAIN_S = 1.0  # after a room's registration: a mail that was accepted at the same time sent no notification
NAP = timedelta(seconds=5)  # work that is due sooner does not let a room sleep
GOODBYE_S = 2.0  # for the last statement of a stopping process

_NOT_RUNNING = "the rooms of a server are served inside `run`"
_log = structlog.get_logger()


class ServerRooms:
    """Serves the rooms of one server that `adopt` names."""

    def __init__(
        self,
        server: Server,
        run_room: RunRoom,
        watcher: Watcher,
        options: FleetOptions | None = None,
        *,
        signal: Signal = unheard,
    ) -> None:
        self._server, self._run_room, self._watcher = server, run_room, watcher
        self._options, self._signal = options or FleetOptions(), signal
        self._members: dict[str, Member] = {}
        self._places = asyncio.Semaphore(self._options.awake)  # each awake room takes connections
        self._changed = asyncio.Event()
        self._listener = Listener(server.url, "pg_catalog")
        self._pool: SharedPool | None = None
        self._checks: SharedPool | None = None

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def rooms(self) -> frozenset[str]:
        return frozenset(self._members)

    def pools(self) -> Iterator[tuple[str, Pool]]:
        """Each room and its connections; none outside `run`."""
        if self._pool is not None:
            for name in sorted(self._members):
                yield name, self._pool.of(name)

    # ── members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def adopt(self, names: Iterable[str], *, upkeep_now: bool = False) -> None:
        """Serve exactly these rooms; rooms that were dropped or are being moved stop at once."""
        wanted = frozenset(names)
        for name in wanted - self.rooms:
            spread_s = 0.0 if upkeep_now else random.random() * self._options.upkeep.total_seconds()  # noqa: S311 - spreads load
            member = Member(name, upkeep_at=monotonic() + spread_s)
            member.on_notification = partial(self._notified, member)
            self._members[name] = member
            for channel in CHANNELS:
                self._listener.hear(f"{name}_{channel}", member.on_notification)
        for name in self.rooms - wanted:
            member = self._members[name]
            member.is_gone = True
            member.leaving.set()
            if member.serving is None:
                self._remove(member)
        self._changed.set()

    def wake(self, name: str) -> None:
        """Serve a room of this server now, because its stream has commands."""
        member = self._members.get(name)
        if member is not None:
            self._wake(member)

    def bring_upkeep_forward(self) -> None:
        for member in self._members.values():
            member.upkeep_at = member.check_at = 0.0
        self._changed.set()

    def _remove(self, member: Member) -> None:
        del self._members[member.name]
        for channel in CHANNELS:
            self._listener.ignore(f"{member.name}_{channel}", member.on_notification)

    def _notified(self, member: Member, payload: str) -> None:
        """Wake the room if the notification names a lane; otherwise ask it first, as after each new connection.

        In an awake room that means work for a loop: each channel but that of lanes has one.
        """
        if payload:
            if not member.is_awake:
                member.lanes.add(payload)
            self._wake(member)
        elif member.is_awake:
            member.gates.open_all()
        else:
            member.check_at = 0.0
            self._changed.set()

    # ── sleeping rooms ────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, stop: asyncio.Event) -> None:
        """Serve the rooms until `stop` is set; then finish the work that has begun."""
        settings, url = self._server.settings, self._server.url
        limit = settings.database_timeout
        self._pool = await open_shared_pool(url, size=settings.pool_size, limit=limit)
        # Checks visit every room. On a connection of their own they leave the caches of the others alone.
        self._checks = await open_shared_pool(url, size=1, limit=limit, most_rooms=CHECKED_ROOMS)
        leaving = asyncio.create_task(stop.wait())
        leaving.add_done_callback(lambda _: self._leave())
        async with AsyncExitStack() as stack:
            for pool in (self._pool, self._checks):
                stack.push_async_callback(pool.close)
            await stack.enter_async_context(self._listener)
            connectors = self._pool.connector, self._checks.connector, self._listener.connector
            await stack.enter_async_context(primary_followed(*connectors))
            stack.callback(leaving.cancel)
            await run_loops(self._loops(), stop=stop)
            await self._finish()

    def _loops(self) -> list[Loop]:
        return [
            Loop("rooms", self._check_some, rest=self._rest, more=bool, wake=self._changed, interruptible=True),
            Loop("room writes", self._notice_writes, rest=self._options.check, interruptible=True),
        ]

    def _leave(self) -> None:
        for member in self._members.values():
            member.leaving.set()

    async def _finish(self) -> None:
        serving = [member.serving for member in self._members.values() if member.serving is not None]
        await asyncio.gather(*serving, return_exceptions=True)
        with suppress(Exception):  # a registration that stays is deleted when it has not been renewed for five minutes
            async with asyncio.timeout(GOODBYE_S):
                names = sorted(self._members)
                for chunk in (names[start : start + CHUNK] for start in range(0, len(names), CHUNK)):
                    async with self._checking(chunk) as connection:
                        await store.forget_sleeper(connection, chunk, pid=self._watcher.pid, host=self._watcher.host)

    async def _check_some(self) -> bool:
        """Ask some sleeping rooms whether they have work, the longest due first; True if more are to be asked."""
        self._show()
        await self._renew_some()
        due = [member for member in self._asleep() if member.check_at <= monotonic()]
        # A room that has just registered is asked again while the session has its tables in the cache, before new ones.
        chunk = sorted(due, key=lambda member: (member.check_at or inf, member.name))[:CHUNK]
        if not chunk:
            return False
        if any(member.writes is None for member in chunk):
            await self._begin_counting()
        try:
            await self._check(chunk)
        except Exception as error:
            if is_passing(error):
                raise
            for member in chunk:
                await self._check_alone(member)
        return len(due) > CHUNK

    async def _notice_writes(self) -> None:
        """Ask the rooms to which something was written. On a server that does not count writes, ask all of them."""
        found = await self._count_writes()
        for member in self._asleep():
            before, member.writes = member.writes, found.get(member.name, 0)
            if not found or before not in (None, member.writes):
                member.check_at = min(member.check_at, monotonic())
        self._changed.set()

    async def _begin_counting(self) -> None:
        """Count the writes of new rooms before their first check, so that a write after it changes the number."""
        found = await self._count_writes()
        for member in self._members.values():
            member.writes = found.get(member.name, 0) if member.writes is None else member.writes

    async def _count_writes(self) -> dict[str, int]:
        async with self._checking() as connection:
            return await store.count_writes(connection)

    async def _renew_some(self) -> None:
        """Keep the process registered in some sleeping rooms; a room that has lost the registration is asked."""
        now = monotonic()
        due = [member for member in self._asleep() if member.renew_at <= now < member.check_at]
        chunk = sorted(due, key=lambda member: member.renew_at)[:CHUNK]
        if not chunk:
            return
        names = [member.name for member in chunk]
        try:
            async with self._checking(names) as connection:
                lost = await store.renew_sleeper(connection, names, pid=self._watcher.pid, host=self._watcher.host)
        except Exception as error:
            if is_passing(error):
                raise
            lost = [True] * len(chunk)
        for member, is_lost in zip(chunk, lost, strict=True):
            member.renew_at = now + self._options.renewal.total_seconds()
            member.check_at = now if is_lost else member.check_at

    async def _check(self, members: list[Member]) -> None:
        names = [member.name for member in members]
        for member in members:
            member.check_at = inf  # a notification or a write during the check sets another time
        try:
            async with self._checking(names) as connection:
                found = await store.watch_room(connection, names, **asdict(self._watcher))
        except Exception:
            for member in members:
                member.check_at = min(member.check_at, monotonic())
            raise
        for member, watched in zip(members, found, strict=True):
            self._digest(member, watched)

    def _checking(self, names: Iterable[str] = ()) -> AbstractAsyncContextManager[Any]:
        if self._checks is None:
            raise RuntimeError(_NOT_RUNNING)
        return self._checks.acquire_in("pg_catalog", naming=names)

    async def _check_alone(self, member: Member) -> None:
        """A room that was dropped meanwhile, or lacks a migration, does not hide the others."""
        try:
            await self._check([member])
        except Exception as error:
            if is_passing(error):
                raise
            pause_s = max(member.failure.fail(), self._options.check.total_seconds())
            member.check_at = monotonic() + pause_s
            _log.warning("room_check_failed", room=member.name, server=self.name, error=type(error).__name__)

    def _digest(self, member: Member, watched: Watched) -> None:
        now = monotonic()
        next_at = member.upkeep_at if watched.wait_s is None else min(member.upkeep_at, now + watched.wait_s)
        if next_at <= now:
            self._wake(member)
            return
        member.again_at = now + AGAIN_S if watched.is_new else member.again_at
        member.check_at = min(member.check_at, next_at, member.again_at if member.again_at > now else inf)
        member.renew_at = now + self._options.renewal.total_seconds()
        self._signal(f"asleep {member.name}")

    def _rest(self) -> timedelta:
        times = (min(member.check_at, member.renew_at) for member in self._asleep())
        return timedelta(seconds=max(min(times, default=monotonic() + LONGEST_PAUSE_S) - monotonic(), 0.0))

    def _asleep(self) -> list[Member]:
        return [member for member in self._members.values() if member.serving is None and not member.leaving.is_set()]

    # ── awake rooms ───────────────────────────────────────────────────────────────────────────────────────────────

    def _wake(self, member: Member) -> None:
        if member.serving is None and not member.leaving.is_set():
            member.serving = asyncio.create_task(self._serve(member), name=f"room {member.name}")

    async def _serve(self, member: Member) -> None:
        """Keep a room awake until it is idle; after an error it pauses."""
        pause_s = 0.0
        try:
            async with self._places:
                await self._keep_awake(member)
            member.failure.reset()
        except Exception as error:  # noqa: BLE001 - an error of one room must not end the others
            pause_s = member.failure.fail()
            _log.error("room_failed", room=member.name, server=self.name, error=type(error).__name__)
        finally:
            member.serving, member.is_awake, member.check_at = None, False, monotonic() + pause_s
            if member.is_gone:
                self._remove(member)
            self._changed.set()

    async def _keep_awake(self, member: Member) -> None:
        room = self._open(member.name)
        stop, upkeep_s = asyncio.Event(), max(member.upkeep_at - monotonic(), 0.0)
        wake = await self._begin(member, room, timedelta(seconds=upkeep_s))
        running = asyncio.create_task(self._run_room(room, stop=stop, wake=wake))
        try:
            await self._until_idle(member, room, running)
        finally:
            stop.set()
            await running
        if upkeep_s == 0:
            member.upkeep_at = monotonic() + self._options.upkeep.total_seconds()

    async def _begin(self, member: Member, room: Room, upkeep_in: timedelta) -> RoomWake:
        """Register in one statement: every statement of a room that wakes is cold, and its first mail waits for it."""
        async with room.pool.acquire() as connection:
            try:
                worker_id, process = await store.wake_room(
                    connection, pid=self._watcher.pid, host=self._watcher.host, release=RELEASE
                )
            except asyncpg.UndefinedFunctionError:
                await check_migrated(connection, member.name)
                raise
        lanes, member.lanes, member.gates, member.is_awake = frozenset(member.lanes), set(), Gates(), True
        if not lanes:
            member.gates.open_all()
        return RoomWake(worker_id=worker_id, process=process, lanes=lanes, upkeep_in=upkeep_in, gates=member.gates)

    async def _until_idle(self, member: Member, room: Room, running: "asyncio.Task[None]") -> None:
        """Return when nothing was to do twice, when it is the turn of another room, or at the end."""
        ended, began_at, idle_looks = asyncio.Event(), monotonic(), 0
        running.add_done_callback(lambda _: ended.set())
        while idle_looks < 2:  # noqa: PLR2004 - a burst may pause
            await wait_for_any(ended, member.leaving, timeout_s=self._options.look.total_seconds())
            if ended.is_set() or member.leaving.is_set():
                return
            if self._places.locked() and monotonic() - began_at > self._options.turn.total_seconds():
                return
            idle_looks = idle_looks + 1 if await self._is_idle(member, room) else 0

    async def _is_idle(self, member: Member, room: Room) -> bool:
        """False if the room has work soon; its loops begin then."""
        try:
            async with room.pool.acquire() as connection:
                due, has_claims = await store.find_work(
                    connection,
                    collects_tokens=self._watcher.collects_tokens,
                    publishers=self._watcher.publishers,
                    within=NAP,
                )
        except INTERRUPTIONS:
            return False
        member.gates.open(due)
        return not has_claims and not due

    def _open(self, name: str) -> Room:
        url = self._server.url
        return Room(self._server.settings_of(name), url, url, self._shared.of(name), self._listener)

    @property
    def _shared(self) -> SharedPool:
        if self._pool is None:
            raise RuntimeError(_NOT_RUNNING)
        return self._pool

    def _show(self) -> None:
        awake = sum(member.is_awake for member in self._members.values())
        serving = sum(member.serving is not None for member in self._members.values())
        states = {"asleep": len(self._members) - serving, "waiting": serving - awake, "awake": awake}
        for state, count in states.items():
            SERVED_ROOMS.labels(self.name, state).set(count)
