"""The rooms of one server in a worker process: most of them sleep.

A sleeping room has no loops and no connection. The process listens to its channels on a connection that all rooms of
the server share, and is registered in its table of workers, so that accepting a mail notifies it. Every `check` it asks
the sleeping rooms when they have work, many in one statement: that finds work without a notification, and work whose
time has come. A room with work gets the loops of an ordinary worker until it has been idle for a while.

All rooms of the server share one pool. At most `awake` rooms are awake at the same time; others wait, the oldest first,
and a room that was awake for `turn` gives way to them. Loops that only keep a room in order run once per `upkeep`.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Protocol

import structlog

from postroom.db.faults import INTERRUPTIONS, is_passing
from postroom.db.listen import Listener
from postroom.db.migrate import check_migrated
from postroom.db.primary import primary_followed
from postroom.db.room import Room
from postroom.db.shared_pool import SharedPool, open_shared_pool
from postroom.rooms import store
from postroom.rooms.metrics import SERVED_ROOMS
from postroom.rooms.model import Watched, Watcher
from postroom.rooms.service import Server
from postroom.runtime.backoff import Backoff
from postroom.runtime.loop import FIRST_PAUSE_S, LONGEST_PAUSE_S, Loop, run_loops, wait_for_any
from postroom.runtime.signals import Signal, unheard

CHANNELS = ("deliveries", "campaigns", "tokens", "events", "outbox")
CHUNK = 20  # rooms of one check: it locks about 40 tables and indexes of each, and the server's lock table is limited
AGAIN_S = 1.0  # after a room's registration: a mail that was accepted at the same time sent no notification
NAP_S = 5.0  # work that is due sooner does not let a room sleep
GOODBYE_S = 2.0

_log = structlog.get_logger()


class RunRoom(Protocol):
    """Runs the loops of a worker in one room until `stop` is set; those of upkeep start after `upkeep_in`."""

    async def __call__(self, room: Room, *, stop: asyncio.Event, upkeep_in: timedelta) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Options of a worker of many rooms; `awake` is a setting."""

    awake: int = 50
    check: timedelta = timedelta(seconds=10)
    look: timedelta = timedelta(seconds=2)  # twice without work, and an awake room sleeps
    turn: timedelta = timedelta(seconds=30)
    upkeep: timedelta = timedelta(hours=1)
    discovery: timedelta = timedelta(seconds=10)


@dataclass(slots=True, eq=False)
class Member:
    """A room that this process serves."""

    name: str
    upkeep_at: float
    check_at: float = 0.0
    serving: asyncio.Task[None] | None = None
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    on_notification: Callable[[str], None] = field(default=lambda _payload: None)
    is_awake: bool = False  # False while it waits for its turn
    is_gone: bool = False  # dropped, or moving to another server
    is_checked: bool = False  # its migrations are those of this version
    failure: Backoff = field(default_factory=partial(Backoff, FIRST_PAUSE_S, LONGEST_PAUSE_S))


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
        self._places = asyncio.Semaphore(self._options.awake)
        self._changed = asyncio.Event()
        self._listener = Listener(server.url, "pg_catalog")
        self._pool: SharedPool | None = None

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def rooms(self) -> frozenset[str]:
        return frozenset(self._members)

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

    def bring_upkeep_forward(self) -> None:
        for member in self._members.values():
            member.upkeep_at = member.check_at = 0.0
        self._changed.set()

    def _remove(self, member: Member) -> None:
        del self._members[member.name]
        for channel in CHANNELS:
            self._listener.ignore(f"{member.name}_{channel}", member.on_notification)

    def _notified(self, member: Member, payload: str) -> None:
        """Wake the room if the notification names a lane; otherwise ask it first, as after each new connection."""
        if payload:
            self._wake(member)
        else:
            member.check_at = 0.0
            self._changed.set()

    # ── sleeping rooms ────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, stop: asyncio.Event) -> None:
        """Serve the rooms until `stop` is set; then finish the work that has begun."""
        settings = self._server.settings
        self._pool = pool = await open_shared_pool(
            self._server.url, size=settings.pool_size, limit=settings.database_timeout
        )
        leaving = asyncio.create_task(stop.wait())
        leaving.add_done_callback(lambda _: self._leave())
        checks = Loop("rooms", self._check_some, rest=self._rest, more=bool, wake=self._changed, interruptible=True)
        async with self._listener, primary_followed(pool.connector):
            try:
                await run_loops([checks], stop=stop)
                await self._finish()
            finally:
                leaving.cancel()
                await pool.close()

    def _leave(self) -> None:
        for member in self._members.values():
            member.leaving.set()

    async def _finish(self) -> None:
        serving = [member.serving for member in self._members.values() if member.serving is not None]
        await asyncio.gather(*serving, return_exceptions=True)
        with suppress(Exception):  # a registration that stays is deleted when it has not been renewed for five minutes
            async with asyncio.timeout(GOODBYE_S):
                names = sorted(self._members)
                for start in range(0, len(names), CHUNK):
                    await self._forget(names[start : start + CHUNK])

    async def _check_some(self) -> bool:
        """Ask some sleeping rooms whether they have work, the longest unasked first; True if more are to be asked."""
        self._show()
        due = [member for member in self._asleep() if member.check_at <= monotonic()]
        chunk = sorted(due, key=lambda member: (member.check_at, member.name))[:CHUNK]
        if not chunk:
            return False
        try:
            await self._check(chunk)
        except Exception as error:
            if is_passing(error):
                raise
            for member in chunk:
                await self._check_alone(member)
        return len(due) > CHUNK

    async def _check(self, members: list[Member]) -> None:
        async with self._shared.of("pg_catalog").acquire() as connection:
            found = await store.watch_room(connection, [member.name for member in members], **asdict(self._watcher))
        for member, watched in zip(members, found, strict=True):
            self._digest(member, watched)

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
        now, wait_s = monotonic(), self._options.check.total_seconds()
        if watched.wait_s is not None:
            wait_s = min(wait_s, watched.wait_s)
        if wait_s <= 0 or member.upkeep_at <= now:
            self._wake(member)
        else:
            member.check_at = now + (min(wait_s, AGAIN_S) if watched.is_new else wait_s)
            self._signal(f"asleep {member.name}")

    def _rest(self) -> timedelta:
        next_at = min((member.check_at for member in self._asleep()), default=monotonic() + LONGEST_PAUSE_S)
        return timedelta(seconds=max(next_at - monotonic(), 0.0))

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
                member.is_awake = True
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
        if not member.is_checked:
            async with room.pool.acquire() as connection:
                await check_migrated(connection, member.name)
            member.is_checked = True
        stop, upkeep_s = asyncio.Event(), max(member.upkeep_at - monotonic(), 0.0)
        running = asyncio.create_task(self._run_room(room, stop=stop, upkeep_in=timedelta(seconds=upkeep_s)))
        try:
            await self._forget([member.name])  # beside the first mail, which does not wait for it
            await self._until_idle(member, room, running)
        finally:
            stop.set()
            await running
        if upkeep_s == 0:
            member.upkeep_at = monotonic() + self._options.upkeep.total_seconds()

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
            idle_looks = idle_looks + 1 if await self._is_idle(room) else 0

    async def _is_idle(self, room: Room) -> bool:
        try:
            async with room.pool.acquire() as connection:
                wait_s, has_claims = await store.find_work(
                    connection, collects_tokens=self._watcher.collects_tokens, publishers=self._watcher.publishers
                )
        except INTERRUPTIONS:
            return False
        return not has_claims and (wait_s is None or wait_s > NAP_S)

    async def _forget(self, names: list[str]) -> None:
        async with self._shared.of("pg_catalog").acquire() as connection:
            await store.forget_sleeper(connection, names, pid=self._watcher.pid, host=self._watcher.host)

    def _open(self, name: str) -> Room:
        url = self._server.url
        return Room(self._server.settings_of(name), url, url, self._shared.of(name), self._listener)

    @property
    def _shared(self) -> SharedPool:
        if self._pool is None:
            raise RuntimeError("the rooms of a server are served inside `run`")
        return self._pool

    def _show(self) -> None:
        awake = sum(member.is_awake for member in self._members.values())
        serving = sum(member.serving is not None for member in self._members.values())
        states = {"asleep": len(self._members) - serving, "waiting": serving - awake, "awake": awake}
        for state, count in states.items():
            SERVED_ROOMS.labels(self.name, state).set(count)
