"""Slots of a transport: as many mails at a time as it has connections.

A task with a slot sends one mail after another (`postroom.delivery.dispatch`). A mail gets its slot before its turn
and its connection, so a waiting mail has not started: it can still expire, and a stopping worker releases it. The slots
of a mailbox limit the mails that an unresponsive server can hold. When all slots of a mailbox have been in flight for
`STALL_S` without one ending, the mailbox is stalled: waiting mails are released, claims leave it out, and its mails no
longer count against its lane. Any end of an attempt makes it usable again. After `UNREACHED` attempts in a row that did
not reach the server, this worker uses the mailbox only after a pause: the network of this host, or the server, is down.
That says nothing about the account, which other hosts may use, so its health does not change. A server that has had a
whole message for `SILENCE_S` without answering is reported as an error of the account: its health need not wait ten
minutes for the transport's own timeout.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import structlog

from postroom.delivery.model import DeliveryId, Lane, Outgoing
from postroom.runtime.loop import Backoff, Loop
from postroom.transports.base import SendProgress, Transport

STALL_S = 10.0  # several times what a healthy server needs for one mail
SILENCE_S = 60.0  # far below the ten minutes of the final timeout
LOOK_S = 1.0  # a stall is noticed at most this late
UNREACHED = 10  # a few failures are ordinary; so many in a row are a cut network or a stopped server
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 60.0  # mail continues at most a minute after the server is back

_log = structlog.get_logger()


class InFlight(msgspec.Struct):
    """A mail at a transport, and the time since which only the reply is missing."""

    outgoing: Outgoing
    passage: SendProgress
    waits_since: float | None = None
    is_reported: bool = False

    def is_silent(self, now: float) -> bool:
        """True once: when the reply has been missing for too long."""
        if self.is_reported or not self.passage.is_handed_over:
            return False
        if self.waits_since is None:
            self.waits_since = now
        self.is_reported = now - self.waits_since >= SILENCE_S
        return self.is_reported


@dataclass(slots=True)
class TransportSlots:
    """The slots of one transport, and the mails that wait for one. Belongs to one event loop."""

    limit: int
    may_stall: bool
    flights: dict[DeliveryId, InFlight] = field(default_factory=dict)
    is_stalled: bool = False
    _taken: int = 0
    _moved_at: float = 0.0
    _waiting: deque[Outgoing] = field(default_factory=deque)
    _unreached: int = 0
    _pause: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    _paused_until: float = 0.0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)  # to look it up is a system call

    @property
    def is_paused(self) -> bool:
        return self._paused_until > 0

    def offer(self, outgoing: Outgoing) -> bool:
        """Queue a mail, first come, first served. False: the transport is paused, or stalled without a slot."""
        if self.is_paused or (self.is_stalled and self._taken >= self.limit):
            return False
        self._waiting.append(outgoing)
        return True

    def enter(self, queue_depth: int = 0) -> bool:
        """Take a slot for a task that sends waiting mails one after another.

        False: all slots are taken, or each task that has one has at most `queue_depth` waiting mails to send.
        """
        if self._taken >= self.limit or (queue_depth and len(self._waiting) <= queue_depth * self._taken):
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        self._taken -= 1

    def next(self, is_wanted: Callable[[Outgoing], bool] = lambda _: True) -> Outgoing | None:
        """The next mail for a task with a slot, if it is wanted. None: the task must leave.

        No mail waits, the limit was lowered, or the transport is paused.
        """
        return self._waiting.popleft() if self.may_start and is_wanted(self._waiting[0]) else None

    @property
    def is_idle(self) -> bool:
        """True if no task has a slot."""
        return not self._taken

    @property
    def waiting(self) -> int:
        """The number of mails that wait for a task with a slot."""
        return len(self._waiting)

    @property
    def may_start(self) -> bool:
        """True if a mail waits and a task with a slot may start it."""
        return bool(self._waiting) and self._taken <= self.limit and not self.is_paused

    @property
    def first_of_several(self) -> Outgoing | None:
        """The mail that has waited longest; None if no other one waits."""
        return self._waiting[0] if len(self._waiting) > 1 else None

    def begin(self, outgoing: Outgoing, passage: SendProgress) -> None:
        """Record that a mail is handed to the transport."""
        self.flights[outgoing.id] = InFlight(outgoing, passage)
        self._moved_at = self._loop.time()

    def end(self, outgoing: Outgoing) -> None:
        """Record that an attempt has ended, whether the mail was handed to the transport or not."""
        if self.flights.pop(outgoing.id, None) is not None:
            self._moved_at = self._loop.time()
            self.is_stalled = self.is_paused

    def count_reached(self, *, is_reached: bool) -> None:
        """Record whether an attempt reached the server; pause after too many in a row that did not."""
        if is_reached:
            if self._unreached:
                self._unreached = 0
                self._pause.reset()
            return
        self._unreached += 1
        if self.may_stall and self._unreached >= UNREACHED and not self.is_paused:
            self._paused_until = self._loop.time() + self._pause.fail()

    def take_waiting(self) -> list[Outgoing]:
        """Remove all mails that wait for a slot."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def look(self, now: float) -> list[InFlight]:
        """Check whether the transport is stalled or paused, and return mails that have just become silent."""
        if self.is_paused and now >= self._paused_until:
            self._paused_until, self.is_stalled = 0.0, False
        hangs = len(self.flights) >= self.limit and now - self._moved_at >= STALL_S
        if self.may_stall and (self.is_paused or hangs):
            self.is_stalled = True
        return [flight for flight in self.flights.values() if flight.is_silent(now)]

    def is_delayed(self, now: float) -> bool:
        """True if mails wait although slots are free: the server was quick, and has answered nothing for a while."""
        return self.may_start and self._taken < self.limit and now - self._moved_at >= LOOK_S


class WorkerSlots:
    """The slots of one worker, for each account and lane, and for each lane of the relay."""

    def __init__(
        self,
        *,
        on_silence: Callable[[list[Outgoing]], Awaitable[None]],
        on_stall: Callable[[Lane, list[Outgoing]], None],
        on_delay: Callable[[Lane, TransportSlots], None] = lambda _lane, _gate: None,
    ) -> None:
        self._gates: dict[tuple[int | None, Lane], TransportSlots] = {}
        self._on_silence, self._on_stall, self._on_delay = on_silence, on_stall, on_delay

    def gate(self, outgoing: Outgoing, transport: Transport) -> TransportSlots | None:
        """The slots that this mail needs; None if the transport has no limit."""
        limit = getattr(transport, "max_connections", None)
        if not isinstance(limit, int):
            return None
        account_id = outgoing.sender_account_id
        gate = self._gates.get((account_id, outgoing.lane))
        if gate is None:
            gate = self._gates[account_id, outgoing.lane] = TransportSlots(limit, may_stall=account_id is not None)
        gate.limit = limit
        return gate

    def stalled(self, lane: Lane) -> Iterator[tuple[int, TransportSlots]]:
        """The accounts of a lane whose servers do not answer."""
        for (account_id, of_lane), gate in self._gates.items():
            if gate.is_stalled and of_lane is lane and account_id is not None:
                yield account_id, gate

    def take_waiting(self) -> list[Outgoing]:
        """Remove all mails that wait for a slot, at every transport."""
        return [outgoing for gate in self._gates.values() for outgoing in gate.take_waiting()]

    def loop(self) -> Loop:
        """Look for stalled and silent transports once a second."""
        return Loop("slots", self.look, rest=timedelta(seconds=LOOK_S))

    async def look(self) -> None:
        """Report transports that have stalled and mails that have become silent."""
        if silent := self.take_silent(asyncio.get_running_loop().time()):
            await self._on_silence(silent)

    def take_silent(self, now: float) -> list[Outgoing]:
        """The mails that have just become silent. Mails that wait for a newly stalled transport are released."""
        silent: list[Outgoing] = []
        for (account_id, lane), gate in self._gates.items():
            was_stalled = gate.is_stalled
            silent += [flight.outgoing for flight in gate.look(now) if account_id is not None]
            if gate.is_stalled and not was_stalled:
                state = "sender_unreachable" if gate.is_paused else "sender_stalled"
                _log.warning(state, sender=account_id, lane=lane, mails=len(gate.flights))
            if gate.is_stalled and (waiting := gate.take_waiting()):
                self._on_stall(lane, waiting)
            elif gate.is_delayed(now):
                self._on_delay(lane, gate)
        return silent
