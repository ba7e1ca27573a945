"""Slots of a transport: as many mails at a time as it has connections.

A mail takes its slot before its turn and its connection, so a waiting mail has not started: it can still expire, and
a stopping worker releases it. The slots of a mailbox limit the mails that an unresponsive server can hold. When all
slots of a mailbox have been in flight for `STALL_S` without one ending, the mailbox is stalled: waiting mails are
released, claims leave it out, and its mails no longer count against its lane. Any end of an attempt makes it usable
again. A server that has had a whole message for `SILENCE_S` without answering is reported as an error of the
account: its health need not wait ten minutes for the transport's own timeout.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import structlog

from postroom.delivery.model import DeliveryId, Lane, Outgoing
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
    """The slots of one transport. Belongs to one event loop."""

    limit: int
    may_stall: bool
    flights: dict[DeliveryId, InFlight] = field(default_factory=dict)
    is_stalled: bool = False
    _taken: int = 0
    _moved_at: float = 0.0
    _waiting: deque[asyncio.Future[bool]] = field(default_factory=deque)

    async def enter(self) -> bool:
        """Wait for a slot, first come, first served. False: the transport is stalled and has no slot."""
        if self._taken < self.limit:
            self._taken += 1
            return True
        if self.is_stalled:
            return False
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.result():
                self._pass_on()  # the slot arrived together with the cancellation
            raise

    def begin(self, outgoing: Outgoing, passage: SendProgress) -> None:
        """Record that a mail with a slot is handed to the transport."""
        self.flights[outgoing.id] = InFlight(outgoing, passage)
        self._moved_at = asyncio.get_running_loop().time()

    def leave(self, outgoing: Outgoing) -> None:
        """Return a slot, whether the mail was handed to the transport or not."""
        if self.flights.pop(outgoing.id, None) is not None:
            self._moved_at = asyncio.get_running_loop().time()
            self.is_stalled = False
        self._pass_on()

    def look(self, now: float) -> list[InFlight]:
        """Check whether the transport is stalled, and return mails that have just become silent."""
        is_full = len(self.flights) >= self.limit
        if self.may_stall and is_full and not self.is_stalled and now - self._moved_at >= STALL_S:
            self.is_stalled = True
            while self._waiting:
                _answer(self._waiting.popleft(), is_place=False)
        return [flight for flight in self.flights.values() if flight.is_silent(now)]

    def _pass_on(self) -> None:
        while self._waiting:
            if _answer(self._waiting.popleft(), is_place=True):
                return
        self._taken -= 1


def _answer(waiting: asyncio.Future[bool], *, is_place: bool) -> bool:
    if waiting.done():
        return False
    waiting.set_result(is_place)
    return True


class WorkerSlots:
    """The slots of one worker, for each account and lane, and for each lane of the relay."""

    def __init__(
        self,
        *,
        on_silence: Callable[[list[Outgoing]], Awaitable[None]],
        on_stall: Callable[[Lane], None],
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

    async def watch(self) -> None:
        """Check for stalled and silent transports until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = asyncio.get_running_loop().time()
            silent: list[Outgoing] = []
            for (account_id, lane), gate in self._gates.items():
                was_stalled = gate.is_stalled
                silent += [flight.outgoing for flight in gate.look(now) if account_id is not None]
                if gate.is_stalled and not was_stalled:
                    _log.warning("sender_stalled", sender=account_id, lane=lane, mails=len(gate.flights))
                    self._on_stall(lane)
            if silent:
                await self._on_silence(silent)
