"""Hands started deliveries to their transports, and their results to the ledger.

A transport that never waits (no-op, stub) replies to a whole chunk in one go. A transport with a connection limit is
served by at most that many tasks for each account and lane; each task sends the next waiting mail when its last one has
ended, or feeds several waiting mails to the transport (`feed`), which sends them over one connection. Every other
delivery (a webhook) has a task of its own.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from postroom.delivery.attempt import AttemptRunner
from postroom.delivery.decision import NOWHERE, AttemptResult
from postroom.delivery.feed import TransportFeed
from postroom.delivery.lane import LaneLoad, Precedence
from postroom.delivery.ledger import Ledger
from postroom.delivery.model import Channel, ClaimId, Lane, Outgoing
from postroom.delivery.slots import TransportSlots, WorkerSlots
from postroom.runtime.metrics import LOOP_FAILURES
from postroom.runtime.tracing import span
from postroom.senders.health import AttemptKind, judge
from postroom.transports.base import FeedTransport
from postroom.transports.webhook.host_backoff import HostBackoff

_log = structlog.get_logger()


class Dispatcher:
    """The attempts of one worker."""

    def __init__(
        self,
        attempter: AttemptRunner,
        ledger: Ledger,
        precedence: Precedence,
        *,
        lanes: Mapping[Lane, LaneLoad],
        places: WorkerSlots,
        hosts: HostBackoff,
    ) -> None:
        self._attempter, self._ledger, self._lanes, self._places, self._hosts = attempter, ledger, lanes, places, hosts
        self._precedence = precedence

    def start(self, lane: Lane, started: Sequence[Outgoing]) -> None:
        """Begin the attempts of deliveries that are marked as started."""
        self._lanes[lane].opened(started)
        stalled: list[Outgoing] = []
        for outgoing in started:
            try:
                result = self._attempter.attempt_now(outgoing)
                if result is not None:
                    self._ended(outgoing, result)
                elif not self._queue(lane, outgoing):
                    stalled.append(outgoing)
            except Exception as error:  # noqa: BLE001 - a bug must not take the other deliveries of the chunk with it
                self.crashed(outgoing, error)
        if stalled:
            self.release(lane, stalled)

    def release(self, lane: Lane, waiting: Sequence[Outgoing]) -> None:
        """Release started deliveries that did not reach a transport."""
        self._lanes[lane].begin(self._release(waiting))

    def finished(self, gate: TransportSlots, outgoing: Outgoing, result: AttemptResult) -> None:
        """Record the result of a mail that had a slot."""
        gate.count_reached(is_reached=result.is_plain or judge(result.reply) is not AttemptKind.UNREACHED)
        self._ended(outgoing, result)

    def queue_again(self, outgoing: Outgoing) -> None:
        """Queue a started delivery that a transport returned."""
        if not self._queue(outgoing.lane, outgoing):
            self.release(outgoing.lane, [outgoing])

    async def finish(self, timeout_s: float | None) -> None:
        """Wait for all attempts; after the timeout release those that wait and cancel those in flight."""
        if hanging := await self._wait(timeout_s):
            waiting = self._places.take_waiting()  # first, so that a cancelled task finds no other mail
            for task in hanging:
                task.cancel()
            await asyncio.wait(hanging)
            await self._release(waiting)

    async def _wait(self, timeout_s: float | None) -> set[asyncio.Task[None]]:
        tasks = {task for load in self._lanes.values() for task in load.tasks}
        if not tasks:
            return set()
        _done, hanging = await asyncio.wait(tasks, timeout=timeout_s)
        return hanging

    def _queue(self, lane: Lane, outgoing: Outgoing) -> bool:
        """Give a delivery to a task. False: its transport is stalled."""
        transport = self._attempter.way_out(outgoing)
        gate = self._places.gate(outgoing, transport)
        if gate is None:
            self._lanes[lane].begin(self._attempt(outgoing, None))
            return True
        if not gate.offer(outgoing):
            return False
        queues = lane is not Lane.AUTH and not gate.is_idle
        if gate.enter(getattr(transport, "queue_depth", 0) if queues else 0):
            self._lanes[lane].begin(self._serve(lane, gate))
        return True

    def spread(self, lane: Lane, gate: TransportSlots) -> None:
        """Start more tasks for mails that wait behind others at a server that has become slow."""
        for _ in range(gate.waiting):
            if gate.enter():
                self._lanes[lane].begin(self._serve(lane, gate))

    async def _serve(self, lane: Lane, gate: TransportSlots) -> None:
        """Send waiting mails, one after another, until none is left."""
        try:
            while gate.may_start:
                await self._precedence.give_way(lane)
                first = gate.first_of_several
                transport = None if first is None else self._attempter.feed_transport(first)
                if transport is not None:
                    await self._feed(transport, lane, gate)
                elif (outgoing := gate.next()) is not None:
                    await self._attempt(outgoing, gate)
        finally:
            gate.leave()

    async def _feed(self, transport: FeedTransport, lane: Lane, gate: TransportSlots) -> None:
        """Send the waiting mails of a transport over one of its connections."""
        feed = TransportFeed(self._attempter, transport, gate, self, partial(self._precedence.holds_back, lane))
        unsent: list[Outgoing] = []
        try:
            await transport.send_all(feed)
        except asyncio.CancelledError:
            unsent = feed.stop(None)
        except Exception as error:  # noqa: BLE001 - a bug in a transport must not stop the worker
            unsent = feed.stop(error)
        for outgoing in unsent:
            await self._give_back(outgoing.claim_id, [outgoing])

    async def _attempt(self, outgoing: Outgoing, gate: TransportSlots | None) -> None:
        """Attempt one delivery; without a result it is released, as if it had never been claimed."""
        try:
            with span(
                "attempt",
                traceparent=outgoing.traceparent,
                delivery_id=outgoing.id,
                claim_id=outgoing.claim_id,
                attempt=outgoing.attempt_no,
            ) as current:
                result = await self._attempter.attempt(outgoing, gate)
                if current is not None and result is not None:
                    current.set_attributes(_described(result))
        except Exception as error:  # noqa: BLE001 - a bug must not leave a delivery without a result
            self.crashed(outgoing, error)
            return
        if result is None:
            await self._give_back(outgoing.claim_id, [outgoing])
            return
        if gate is None:
            self._ended(outgoing, result)
        else:
            self.finished(gate, outgoing, result)

    def _ended(self, outgoing: Outgoing, result: AttemptResult) -> None:
        if outgoing.channel is Channel.WEBHOOK and result.reply is not None and result.transport != NOWHERE:
            self._hosts.ended(outgoing.url, result.reply)
        self._ledger.add(result)

    def crashed(self, outgoing: Outgoing, error: Exception) -> None:
        """Record a bug around an attempt as an ambiguous result: the message may have left."""
        _log.error("attempt_crashed", delivery_id=outgoing.id, error=type(error).__name__, exc_info=error)
        LOOP_FAILURES.labels(loop="attempt").inc()
        self._ledger.add(self._attempter.crashed(outgoing))

    async def _release(self, waiting: Sequence[Outgoing]) -> None:
        """Release deliveries that have not taken their turn."""
        by_claim: defaultdict[ClaimId, list[Outgoing]] = defaultdict(list)
        for outgoing in waiting:
            self._attempter.skip_turn(outgoing)
            by_claim[outgoing.claim_id].append(outgoing)
        for claim_id, released in by_claim.items():
            await self._give_back(claim_id, released)

    async def _give_back(self, claim_id: ClaimId, released: Sequence[Outgoing]) -> None:
        await self._ledger.give_back(claim_id, [outgoing.id for outgoing in released])
        for outgoing in released:
            self._lanes[outgoing.lane].closed(outgoing)


def _described(result: AttemptResult) -> dict[str, str | int]:
    """The attributes of a span for a result: no address and no text of the server, which may quote one."""
    described: dict[str, str | int] = {
        "postroom.outcome": result.outcome or result.state,
        "postroom.transport": result.transport or "",
    }
    if result.reply is not None:
        described |= {"postroom.reply.stage": result.reply.stage.value, "postroom.reply.code": result.reply.code or 0}
    return described
