"""Slots of a transport: as many mails at a time as it has connections.

A task with a slot sends one mail after another (`postroom.delivery.dispatch`). A mail gets its slot before its turn
and its connection, so a waiting mail has not started: it can still expire, and a stopping worker releases it. The slots
of a mailbox limit the mails that an unresponsive server can hold. When all slots of a mailbox have been in flight for
`STALL_S` without one ending, the mailbox is stalled: waiting mails are released, claims leave it out, and its mails no
longer count against its lane. Any end of an attempt makes it usable again. A server that has had a whole message for
`SILENCE_S` without answering is reported as an error of the account: its health need not wait ten minutes for the
transport's own timeout.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from postroom.delivery.model import DeliveryId, Lane, Outgoing
from postroom.runtime.loop import Loop
from postroom.transports.base import SendProgress, Transport

STALL_S = 10.0
SILENCE_S = 60.0
LOOK_S = 1.0

_log = structlog.get_logger()


@dataclass(slots=True)
class InFlight:
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

    def offer(self, outgoing: Outgoing) -> bool:
        """Queue a mail, first come, first served. False: the transport is stalled and has no slot."""
        if self.is_stalled and self._taken >= self.limit:
            return False
        self._waiting.append(outgoing)
        return True

    def enter(self) -> bool:
        """Take a slot for a task that sends waiting mails one after another; False if all slots are taken."""
        if self._taken >= self.limit:
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        self._taken -= 1

    def next(self) -> Outgoing | None:
        """The next mail for a task with a slot. None: no mail waits, or the limit was lowered; the task must leave."""
        return self._waiting.popleft() if self._waiting and self._taken <= self.limit else None

    def begin(self, outgoing: Outgoing, passage: SendProgress) -> None:
        """Record that a mail is handed to the transport."""
        self.flights[outgoing.id] = InFlight(outgoing, passage)
        self._moved_at = asyncio.get_running_loop().time()

    def end(self, outgoing: Outgoing) -> None:
        """Record that an attempt has ended, whether the mail was handed to the transport or not."""
        if self.flights.pop(outgoing.id, None) is not None:
            self._moved_at = asyncio.get_running_loop().time()
            self.is_stalled = False

    def take_waiting(self) -> list[Outgoing]:
        """Remove all mails that wait for a slot."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def look(self, now: float) -> list[InFlight]:
        """Check whether the transport is stalled, and return mails that have just become silent."""
        is_full = len(self.flights) >= self.limit
        if self.may_stall and is_full and now - self._moved_at >= STALL_S:
            self.is_stalled = True
        return [flight for flight in self.flights.values() if flight.is_silent(now)]


class WorkerSlots:
    """The slots of one worker, for each account and lane, and for each lane of the relay."""

    def __init__(
        self,
        *,
        on_silence: Callable[[list[Outgoing]], Awaitable[None]],
        on_stall: Callable[[Lane, list[Outgoing]], None],
    ) -> None:
        self._gates: dict[tuple[int | None, Lane], TransportSlots] = {}
        self._on_silence, self._on_stall = on_silence, on_stall

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
                _log.warning("sender_stalled", sender=account_id, lane=lane, mails=len(gate.flights))
                self._on_stall(lane, gate.take_waiting())
        return silent
